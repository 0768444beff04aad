package trace

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan/netfilter"
)

// truth is the value of a match.
type truth uint8

const (
	no truth = iota
	yes
	maybe  // not known
	chance // decided by chance or by history, see run.chance
)

// value is a truth with, for maybe, why it is not known. Equal keys stand for
// one question, which gets one answer within a walk.
// With fact the key stands for a fact whose answer makes the value known.
type value struct {
	truth    truth
	key, why string
	fact     bool
}

func is(b bool) value {
	if b {
		return value{truth: yes}
	}
	return value{}
}

func unsure(why string) value { return value{truth: maybe, why: why} }

// except applies a "!".
func (v value) except(not bool) value {
	switch {
	case !not:
	case v.truth <= yes:
		v.truth = 1 - v.truth
	case v.key != "":
		if plain, ok := strings.CutPrefix(v.key, "!"); ok {
			v.key = plain
		} else {
			v.key = "!" + v.key
		}
	}
	return v
}

// eval computes a match for the packet as it stands.
func (r *run) eval(m netfilter.Match) value {
	p := &r.pkt
	switch m := m.(type) {
	case netfilter.Comment:
		return is(true)
	case netfilter.Protocol:
		return is(m.Number == p.proto).except(m.Not)
	case netfilter.Address:
		return r.address(m.Side, m.Prefix.Contains).except(m.Not)
	case netfilter.MaskedAddress:
		return r.address(m.Side, m.Contains).except(m.Not)
	case netfilter.IPRange:
		return r.address(m.Side, m.Range.Contains).except(m.Not)
	case netfilter.Interface:
		return r.iface(m)
	case netfilter.Port:
		return r.port(m.Side, m.Range).except(m.Not)
	case netfilter.MultiPort:
		return r.multiport(m).except(m.Not)
	case netfilter.TCPFlags:
		return is(p.proto == netfilter.TCP && (p.flags&m.Mask == m.Comp) != m.Not)
	case netfilter.Mark:
		if p.markWhy != "" {
			return unsure(p.markWhy)
		}
		return is(p.mark&m.Mask == m.Value).except(m.Not)
	case netfilter.ConnMark:
		if r.ct.markWhy != "" {
			return unsure(r.ct.markWhy)
		}
		return is(r.ct.state != 0 && r.ct.state&(netfilter.StateInvalid|netfilter.StateUntracked) == 0 && (r.ct.mark&m.Mask == m.Value) != m.Not)
	case netfilter.AddrType:
		return r.addrType(m)
	case netfilter.StatisticRandom, netfilter.StatisticNth, netfilter.Recent:
		return value{truth: chance}
	case netfilter.SetMatch:
		return r.setMatch(m).except(m.Not)
	case netfilter.ICMPType:
		return r.icmp(m)
	case netfilter.Unknown:
		return unsure(strings.TrimSpace("the match " + m.Text + " is not understood " + paren(m.Why)))
	}
	return r.evalConntrack(m)
}

func paren(s string) string {
	if s == "" {
		return ""
	}
	return "(" + s + ")"
}

// evalConntrack is the second part of the one switch over all matches.
func (r *run) evalConntrack(m netfilter.Match) value {
	switch m := m.(type) {
	case netfilter.ConntrackState:
		return is(r.states()&m.States != 0).except(m.Not)
	case netfilter.ConntrackTuple:
		return r.tuple(m)
	case netfilter.ConntrackDirection:
		return is(r.tracked() && (r.ct.reply == m.Reply) != m.Not)
	case netfilter.ConntrackProto:
		return is(r.tracked() && (r.pkt.proto == m.Number) != m.Not)
	case netfilter.ConntrackStatus:
		return is(r.tracked() && (r.status()&m.Status != 0) != m.Not)
	}
	return r.evalRare(m)
}

// evalRare is the last part of the switch.
func (r *run) evalRare(m netfilter.Match) value {
	p := &r.pkt
	switch m := m.(type) {
	case netfilter.Fragment:
		return is(m.Not)
	case netfilter.PhysDev:
		return r.physdev(m)
	case netfilter.Metered:
		if m.Clock {
			return unsure("it depends on the time of day (" + m.Text + ")")
		}
		r.assumed.add("what " + m.Module + " counts is not exceeded: " + m.Text)
		return is(m.WithinBudget)
	case netfilter.IPVS:
		return r.ipvsMatch(m)
	case netfilter.NFAcct:
		return is(true)
	case netfilter.Owner:
		return r.owner(m)
	case netfilter.RPFilter:
		return r.rpfilter(m)
	case netfilter.Socket:
		return r.socket(m).except(m.Not)
	case netfilter.IPsecPolicy:
		r.assumed.add("no IPsec policy applies")
		return is(m.None)
	case netfilter.Header:
		return r.header(m).except(m.Not)
	case netfilter.MACSource:
		return r.mac(m)
	case netfilter.BPF:
		return r.bpf(m)
	case netfilter.CGroup:
		if !p.local {
			return is(m.Not)
		}
		return unsure("the cgroup of the sending process is not known (" + m.Text + ")")
	case netfilter.U32:
		return r.u32(m).except(m.Not)
	default:
		panic(fmt.Sprintf("trace: no meaning for match %T", m))
	}
}

// address tests one end of the packet.
func (r *run) address(side netfilter.Side, holds func(netip.Addr) bool) value {
	a := r.pkt.dst
	if side == netfilter.SourceSide {
		a = r.pkt.src
	}
	if !a.IsValid() {
		return unsure("the source address given by MASQUERADE is not known")
	}
	return is(holds(a))
}

// iface tests -i or -o.
func (r *run) iface(m netfilter.Interface) value {
	name := r.pkt.out
	if m.In {
		name = r.pkt.in
	}
	if name == unknownDev && m.Name != "+" {
		way := "out"
		if m.In {
			way = "in"
		}
		return value{truth: maybe, key: way + "=" + m.Name, why: "which interface the packet goes " + way + " by is not known"}.except(m.Not)
	}
	return is(m.Matches(name)).except(m.Not)
}

// ephemeral is the range from which Linux takes source ports by default.
var ephemeral = netfilter.PortRange{First: 32768, Last: 60999}

// port tests one side. A source port that was not given is one of those that Linux takes for
// itself, or that a translation has drawn.
func (r *run) port(side netfilter.Side, rng netfilter.PortRange) value {
	p := &r.pkt
	if !hasPorts(p.proto) {
		return value{}
	}
	if side == netfilter.DestinationSide {
		if p.dport == 0 {
			if rng.First <= 1 && rng.Last == 65535 {
				return is(true)
			}
			return value{truth: maybe, key: fmt.Sprint("dport ", rng), why: "the destination port was not given"}
		}
		return is(rng.Contains(p.dport))
	}
	if p.sport != 0 {
		return is(rng.Contains(p.sport))
	}
	from := ephemeral
	if p.drawn != (netfilter.PortRange{}) {
		from = p.drawn
	}
	all := rng.First <= from.First && rng.Last >= from.Last
	if all || rng.Last < from.First || rng.First > from.Last {
		if from == ephemeral {
			r.assumed.add("the source port is one of 32768-60999")
		}
		return is(all)
	}
	return value{truth: maybe, key: fmt.Sprint("sport ", rng), why: "the source port was not given"}
}

// multiport tests any of the ranges, on either side where the module says so.
func (r *run) multiport(m netfilter.MultiPort) value {
	out := value{}
	sides := []netfilter.Side{m.Side}
	if m.Side == netfilter.EitherSide {
		sides = []netfilter.Side{netfilter.SourceSide, netfilter.DestinationSide}
	}
	for _, side := range sides {
		for _, rng := range m.Ranges {
			switch v := r.port(side, rng); v.truth {
			case yes:
				return v
			case maybe:
				out = v
			}
		}
	}
	return out
}

// addrType tests both ends, and the interface to whose addresses it is restricted.
func (r *run) addrType(m netfilter.AddrType) value {
	dev := ""
	switch {
	case m.LimitIn:
		dev = r.pkt.in
	case m.LimitOut:
		dev = r.pkt.out
	}
	out := is(true)
	for _, q := range []struct {
		addr netip.Addr
		want netfilter.AddrKind
		not  bool
	}{{r.pkt.src, m.Src, m.SrcNot}, {r.pkt.dst, m.Dst, m.DstNot}} {
		if q.want == 0 {
			continue
		}
		v := r.kindIs(q.addr, dev, q.want).except(q.not)
		switch v.truth {
		case no:
			return v
		case maybe:
			out = v
		}
	}
	return out
}

// kindIs asks for the type of an address.
func (r *run) kindIs(a netip.Addr, dev string, want netfilter.AddrKind) value {
	if !a.IsValid() {
		return unsure("the source address is not known")
	}
	if dev == unknownDev {
		return unsure("the interface to whose addresses --limit-iface restricts is not known")
	}
	if a.Is6() && want&netfilter.KindUnicast != 0 {
		// In IPv6 the address itself tells what is unicast (loopback and local ones
		// are, too), and a type asked for beside it must hold as well.
		want &^= netfilter.KindUnicast
		if a.IsMulticast() || a.IsUnspecified() || want == 0 {
			return is(!a.IsMulticast() && !a.IsUnspecified())
		}
	}
	kind, known := r.tracer.fib.AddrKind(a, dev)
	if known {
		return is(kind&want != 0)
	}
	if local, decided := r.oracle.decided("local " + a.String()); decided {
		kind = netfilter.KindUnicast
		if local {
			kind = netfilter.KindLocal
		}
		return is(kind&want != 0)
	}
	if want&(netfilter.KindLocal|netfilter.KindUnicast) == 0 {
		r.assumed.add("no address of an interface is known; " + a.String() + " is no broadcast address")
		return is(false)
	}
	key := "local " + a.String()
	if want&netfilter.KindLocal == 0 {
		key = "!" + key
	}
	return value{truth: maybe, key: key, why: "whether " + a.String() + " is an address of the host is not known"}
}

// icmp tests type and code; packets that are traced have code 0.
func (r *run) icmp(m netfilter.ICMPType) value {
	want := netfilter.ICMP
	if m.V6 {
		want = netfilter.ICMPv6
	}
	if r.pkt.proto != want {
		return value{}
	}
	return is(m.Any || (m.Type == r.pkt.icmpType && m.CodeFirst == 0)).except(m.Not)
}
