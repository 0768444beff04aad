package trace

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// chance decides a match by chance, or by what happened before this packet.
func (r *run) chance(m netfilter.Match) bool {
	switch m := m.(type) {
	case netfilter.StatisticRandom:
		return r.oracle.random(r.tracer.share(m))
	case netfilter.StatisticNth:
		r.assumed.add("where the counters of statistic --mode nth stand is not known: shares are those of many packets")
		return r.oracle.random(m.Share())
	case netfilter.Recent:
		return r.recent(m)
	default:
		panic("trace: no chance in this match")
	}
}

// recent: a new client is the rule, a remembered one a branch without share.
func (r *run) recent(m netfilter.Recent) bool {
	a := r.pkt.src
	if m.Side == netfilter.DestinationSide {
		a = r.pkt.dst
	}
	entry := m.Name + " " + endpoint(a, 0)
	if m.Op == netfilter.RecentSet {
		r.memory.recent = append(r.memory.recent, entry)
		return !m.Not
	}
	if slices.Contains(r.memory.recent, entry) && m.HitCount <= 1 {
		return !m.Not // this very packet, or one before it, has put it there
	}
	cond := "the list " + m.Name + " remembers " + endpoint(a, 0)
	if m.Seconds > 0 {
		cond += " from the last " + strconv.Itoa(int(m.Seconds)) + " s"
	}
	r.assumed.add("no recent list remembers the packet's addresses (a list keeps 100 addresses by default); branches where one does have share 0")
	return r.oracle.history(cond) != m.Not
}

// tracked reports whether conntrack has an entry for the packet.
func (r *run) tracked() bool {
	return r.ct.state != 0 && r.ct.state&(netfilter.StateInvalid|netfilter.StateUntracked) == 0
}

// states is the packet's set of states. Before conntrack has looked, in raw,
// a packet counts as INVALID.
func (r *run) states() netfilter.CTState {
	s := r.ct.state
	if s == 0 {
		return netfilter.StateInvalid
	}
	if r.ct.dnat {
		s |= netfilter.StateDNAT
	}
	if r.ct.snat {
		s |= netfilter.StateSNAT
	}
	return s
}

// status is the set of the entry's bits. NONE is no bit, so that the match never
// holds for it and always with "!".
func (r *run) status() netfilter.CTStatus {
	var s netfilter.CTStatus
	if r.ct.confirmed {
		s |= netfilter.StatusConfirmed
	}
	if r.ct.reply {
		s |= netfilter.StatusSeenReply // by this packet at the latest
	}
	if e := r.ct.entry; e != nil {
		s |= netfilter.StatusConfirmed
		if !e.Unreplied {
			s |= netfilter.StatusSeenReply
		}
		if e.Assured {
			s |= netfilter.StatusAssured
		}
	}
	return s
}

// tuple compares one end of the conntrack entry.
func (r *run) tuple(m netfilter.ConntrackTuple) value {
	if !r.tracked() {
		return value{}
	}
	t := r.ct.orig
	if m.Reply {
		t = r.ct.answer
	}
	addr, port := t.Src, t.SrcPort
	if m.Side == netfilter.DestinationSide {
		addr, port = t.Dst, t.DstPort
	}
	if m.Prefix.IsValid() {
		if !addr.IsValid() {
			return unsure("an address of the conntrack entry is not known")
		}
		return is(m.Prefix.Contains(addr)).except(m.Not)
	}
	switch {
	case m.Side == netfilter.DestinationSide && (r.pkt.proto == netfilter.ICMP || r.pkt.proto == netfilter.ICMPv6):
		port = uint16(r.entryType(m.Reply)) << 8
	case port == 0:
		return unsure("a port of the conntrack entry is not known")
	}
	return is(m.Ports.Contains(port)).except(m.Not)
}

// entryType is the ICMP type of one direction of the entry, which stands where
// others have their destination port: an echo request is answered by a reply.
func (r *run) entryType(reply bool) uint8 {
	t := r.pkt.icmpType
	if t == echoReply {
		t = 0
	}
	if r.ct.reply == reply {
		return t
	}
	if other, ok := map[uint8]uint8{8: 0, 0: 8, 128: 129, 129: 128}[t]; ok {
		return other
	}
	return t
}

// setMatch looks the packet up in an ipset.
func (r *run) setMatch(m netfilter.SetMatch) value {
	s := r.tracer.host.Set(m.Name)
	if s == nil {
		return value{truth: maybe, key: fmt.Sprint("set ", m.Name, m.Dims, r.pkt.src, r.pkt.dst), why: "the content of set " + m.Name + " was not given"}
	}
	if m.Counters != "" {
		return unsure("the counters of set " + m.Name + " are not known")
	}
	return r.inSet(s, m.Dims, 0)
}

// inSet asks a set for the packet, dimension by dimension. One dimension may be unknown:
// if no member fits the others, the answer is no all the same.
func (r *run) inSet(s *netfilter.Set, sides []netfilter.Side, depth int) value {
	if s.Type == "list:set" {
		for _, member := range s.Members {
			sub := r.tracer.host.Set(member.Parts[0].Name)
			if sub == nil || depth > 8 {
				return unsure("the content of set " + member.Parts[0].Name + " was not given")
			}
			if v := r.inSet(sub, sides, depth+1); v.truth != no {
				return v
			}
		}
		return value{}
	}
	var k netfilter.SetKey
	dims := s.Dims()
	if len(sides) < len(dims) || len(dims) > len(k) {
		return unsure("the rule gives set " + s.Name + " fewer directions than its type has")
	}
	doubt, open := "", -1
	for i, d := range dims {
		v, why := r.setValue(s, d, sides[i])
		if why != "" && doubt != "" {
			return unsure(doubt)
		}
		if why != "" {
			doubt, open = why, i
		}
		k[i] = v
	}
	if doubt != "" && s.Lacks(k, open) {
		return value{}
	}
	if doubt != "" {
		return unsure(doubt)
	}
	if s.Type == "bitmap:port" && r.pkt.proto != netfilter.TCP && r.pkt.proto != netfilter.UDP {
		return value{}
	}
	return is(s.Contains(k))
}

// setValue is what the packet offers for one dimension; doubt says what of it
// is not known.
func (r *run) setValue(s *netfilter.Set, dim string, side netfilter.Side) (v netfilter.SetValue, doubt string) {
	p := &r.pkt
	src := side == netfilter.SourceSide
	switch dim {
	case "ip", "net":
		v.Addr = p.dst
		if src {
			v.Addr = p.src
		}
		if !v.Addr.IsValid() {
			return v, "the source address is not known"
		}
	case "port":
		if s.Type != "bitmap:port" {
			v.Proto = p.proto
		}
		switch {
		case p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6:
			v.Port = uint16(p.icmpType) << 8
		case src:
			v.Port = p.sport
		default:
			v.Port = p.dport
		}
		if v.Port == 0 && hasPorts(p.proto) {
			return v, "a port that set " + s.Name + " needs was not given"
		}
	case "iface":
		v.Name = p.out
		if src {
			v.Name = p.in
		}
		if v.Name == unknownDev {
			return v, "the interface is not known"
		}
	case "mark":
		v.Mark = p.mark
	case "mac":
		mac := r.macOf(p.src)
		if mac == "" {
			return v, "the MAC address of " + p.src.String() + " is not known"
		}
		v.Name = mac
	default:
		return v, "sets of type " + s.Type + " are not modelled"
	}
	return v, ""
}

func (r *run) macOf(a netip.Addr) string {
	for _, n := range r.tracer.host.Neighbours {
		if n.Addr == a && n.MAC != "" {
			return strings.ToLower(n.MAC)
		}
	}
	return ""
}

func (r *run) mac(m netfilter.MACSource) value {
	if r.pkt.local {
		return value{}
	}
	mac := r.macOf(r.pkt.src)
	if mac == "" {
		return unsure("the MAC address of " + endpoint(r.pkt.src, 0) + " is not known")
	}
	return is(mac == m.Address).except(m.Not)
}
