package trace

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan/netfilter"
)

// state tells whether an expression of nft has a value.
type state uint8

const (
	absent  state = iota // the packet has no such thing: the rule ends
	known                //
	unclear              // there may be a value, which is not known
)

// datum is what an expression gives. An unclear one may have bounds.
type datum struct {
	state state
	value string
	last  string // end of a range that value begins, "" for one value
	why   string
	// key stands for the question, which gets one answer within a walk. With
	// ask the question is about a fact, and its answer makes the datum known.
	key string
	ask bool
	// chance: it is a random number that is yet to be drawn.
	chance bool
	// open: there may be no value at all, because a map may have none.
	open bool
	// cond is what would have to have happened before for an absent datum to
	// be there.
	cond string
}

func have(value string) datum { return datum{state: known, value: value} }

func number(n uint64, bytes uint8) datum { return have(netfilter.Bytes(n, bytes)) }

func puzzle(why string) datum { return datum{state: unclear, why: why} }

// until is the end of the values that a datum stands for.
func (d datum) until() string {
	if d.last == "" {
		return d.value
	}
	return d.last
}

// expr computes an expression. Random numbers are those of r.drawn.
func (r *run) expr(e netfilter.Expr) datum {
	switch e := e.(type) {
	case netfilter.Constant:
		d := have(e.First)
		if e.IsRange() {
			d.last = e.Last
		}
		return d
	case netfilter.Selected:
		return r.selected(e)
	case netfilter.Bitwise:
		return r.bitwise(e)
	case netfilter.Concat:
		return r.concat(e)
	case netfilter.Mapped:
		return r.mapped(e)
	case netfilter.NumGen:
		return r.drawnNumber(e.Offset)
	case netfilter.Hash:
		if d, ok := r.hash(e); ok {
			return d
		}
		return r.drawnNumber(e.Offset)
	case netfilter.FIBLookup:
		return r.fibLookup(e)
	case netfilter.Payload:
		return r.payload(e)
	case netfilter.Opaque:
		if e.Proto != 0 && e.Proto != r.pkt.proto || e.Family != 0 && e.Family != r.family() {
			return datum{}
		}
		return datum{state: unclear, key: e.Text, why: e.Text + " is not known"}
	default:
		panic(fmt.Sprintf("trace: no value of expression %T", e))
	}
}

func (r *run) family() netfilter.Family { return netfilter.FamilyOf(r.pkt.dst) }

// selected is the value of a field.
func (r *run) selected(s netfilter.Selected) datum {
	p := &r.pkt
	if s.Proto != 0 && s.Proto != p.proto || s.Family != 0 && s.Family != r.family() {
		return datum{}
	}
	switch s.Selector {
	case netfilter.MetaL4Proto, netfilter.IPProtocol, netfilter.IP6NextHeader:
		return number(uint64(p.proto), 1)
	case netfilter.MetaNFProto:
		return number(map[netfilter.Family]uint64{netfilter.IPv4: 2, netfilter.IPv6: 10}[r.family()], 1)
	case netfilter.MetaProtocol:
		return number(map[netfilter.Family]uint64{netfilter.IPv4: 0x0800, netfilter.IPv6: 0x86dd}[r.family()], 2)
	case netfilter.MetaMark:
		if p.markWhy != "" {
			return puzzle(p.markWhy)
		}
		return number(uint64(p.mark), 4)
	case netfilter.MetaPriority:
		if p.priorityWhy != "" {
			return puzzle(p.priorityWhy)
		}
		return number(uint64(p.priority), 4)
	case netfilter.MetaIIFName, netfilter.MetaIIF:
		return device("in", p.in)
	case netfilter.MetaOIFName, netfilter.MetaOIF:
		return device("out", p.out)
	case netfilter.MetaGroup:
		return r.sender("group", r.flow.GID)
	case netfilter.MetaUser:
		return r.sender("user", r.flow.UID)
	case netfilter.IPSaddr, netfilter.IP6Saddr:
		return address(p.src, "the source address given by MASQUERADE is not known")
	case netfilter.IPDaddr, netfilter.IP6Daddr:
		return address(p.dst, "")
	case netfilter.SourcePort:
		return r.sourcePort()
	case netfilter.DestinationPort:
		return r.destinationPort()
	}
	if s.Selector >= netfilter.CTStateField {
		return r.connField(s)
	}
	return r.headerField(s)
}

func address(a netip.Addr, why string) datum {
	if !a.IsValid() {
		return puzzle(why)
	}
	return have(netfilter.AddrBytes(a))
}

func device(way, name string) datum {
	if name == unknownDev {
		return datum{state: unclear, key: way, why: "which interface the packet goes " + way + " by is not known"}
	}
	v, _ := netfilter.NameBytes(name)
	return have(v)
}

// sender is the user or the group of the socket that sent the packet.
func (r *run) sender(what string, id *uint32) datum {
	switch {
	case !r.pkt.local || (r.hook != netfilter.Output && r.hook != netfilter.Postrouting):
		return datum{}
	case id == nil:
		return datum{state: unclear, key: what, why: "the " + what + " of the sending process is not known"}
	}
	return number(uint64(*id), 4)
}

func (r *run) sourcePort() datum {
	switch {
	case !hasPorts(r.pkt.proto):
		return puzzle("what stands where other protocols have their ports is not known")
	case r.pkt.sport == 0:
		return datum{state: unclear, value: netfilter.Bytes(uint64(ephemeral.First), 2), last: netfilter.Bytes(uint64(ephemeral.Last), 2), why: "the source port was not given"}
	}
	return number(uint64(r.pkt.sport), 2)
}

func (r *run) destinationPort() datum {
	switch {
	case !hasPorts(r.pkt.proto):
		return puzzle("what stands where other protocols have their ports is not known")
	case r.pkt.dport == 0:
		return datum{state: unclear, value: "\x00\x01", last: "\xff\xff", why: "the destination port was not given"}
	}
	return number(uint64(r.pkt.dport), 2)
}

// headerField is the value of a field of the headers other than addresses and
// ports.
func (r *run) headerField(s netfilter.Selected) datum {
	p := &r.pkt
	switch s.Selector {
	case netfilter.IPTTL, netfilter.IP6HopLimit:
		return number(uint64(p.ttl), 1)
	case netfilter.IPDSCP, netfilter.IP6DSCP:
		r.assumed.add("the packet's TOS field is 0 when it comes")
		return number(uint64(p.tos>>2), 1)
	case netfilter.IPECN:
		r.assumed.add("the packet's TOS field is 0 when it comes")
		return number(uint64(p.tos&3), 1)
	case netfilter.IPVersion:
		return number(4, 1)
	case netfilter.IP6Version:
		return number(6, 1)
	case netfilter.IPHeaderLength:
		r.assumed.add("the packet has no IP options")
		return number(5, 1)
	case netfilter.IPFragOff:
		return puzzle("whether the packet may be fragmented is not known")
	case netfilter.TCPFlagBits:
		return number(uint64(p.flags), 1)
	case netfilter.ICMPTypeField, netfilter.ICMPv6TypeField:
		return number(uint64(p.icmpType), 1)
	case netfilter.ICMPCodeField, netfilter.ICMPv6CodeField:
		return number(0, 1)
	default:
		panic(fmt.Sprintf("trace: no value of selector %d", s.Selector))
	}
}

// bitwise combines two values byte by byte, or shifts one.
func (r *run) bitwise(e netfilter.Bitwise) datum {
	left, right := r.expr(e.Left), r.expr(e.Right)
	switch {
	case left.state == absent || right.state == absent:
		return datum{}
	case right.state == known && left.state == unclear && e.Op == '&':
		if s, is := e.Left.(netfilter.Selected); is && s.Selector == netfilter.IPFragOff && netfilter.Number(right.value)&^0x3fff == 0 {
			r.assumed.add("the packet is no fragment")
			return number(0, 2)
		}
		if strings.Trim(right.value, "\x00") == "" {
			return have(right.value)
		}
		return left.vague()
	case left.state == unclear:
		return left.vague()
	case right.state == unclear:
		return right.vague()
	}
	if e.Op == '<' || e.Op == '>' {
		n, by := netfilter.Number(left.value), netfilter.Number(right.value)
		if e.Op == '<' {
			n <<= by
		} else {
			n >>= by
		}
		return number(n, uint8(len(left.value)))
	}
	return combine(e.Op, left.value, right.value)
}

// vague is an unclear datum of which bounds say nothing any more.
func (d datum) vague() datum {
	return datum{state: unclear, why: d.why, ask: d.ask, open: d.open, chance: d.chance}
}

// combine is one of the operators of nft on two values, byte by byte.
func combine(op byte, a, b string) datum {
	if len(a) != len(b) {
		return puzzle("values of different sizes are combined")
	}
	out := make([]byte, len(a))
	for i := range out {
		switch op {
		case '&':
			out[i] = a[i] & b[i]
		case '|':
			out[i] = a[i] | b[i]
		default:
			out[i] = a[i] ^ b[i]
		}
	}
	return have(string(out))
}

// concat puts values one after the other.
func (r *run) concat(e netfilter.Concat) datum {
	var b strings.Builder
	for _, x := range e.Parts {
		d := r.expr(x)
		if d.state != known {
			return d.vagueUnlessAbsent()
		}
		b.WriteString(d.value)
	}
	return have(b.String())
}

func (d datum) vagueUnlessAbsent() datum {
	if d.state == absent {
		return d
	}
	v := d.vague()
	v.key = d.key
	return v
}

// payload reads bytes of the packet.
func (r *run) payload(e netfilter.Payload) datum {
	im := r.image()
	at := e.Offset / 8
	if e.Base == netfilter.TransportHeader {
		at += 20
		if r.pkt.dst.Is6() {
			at += 20
		}
	}
	text := fmt.Sprintf("%d bits from bit %d of a header", e.Bits, e.Offset)
	end := at + e.Bits/8
	if uint64(end) > uint64(len(im.Data)) {
		return datum{state: unclear, key: text, why: text + " are not known"}
	}
	for _, k := range im.Known[at:end] {
		if k != 0xff {
			return datum{state: unclear, key: text, why: text + " are not known"}
		}
	}
	return have(string(im.Data[at:end]))
}
