package trace

import (
	"fmt"

	"portolan/netfilter"
)

// verdictMap does what a map says for a key.
func (r *run) verdictMap(e *effect, s netfilter.VerdictMap) (ok bool, t turn, j netfilter.Jump, f fate) {
	find := func() found { r.again(); return r.inNFTSet(s.Key, s.Map) }
	got := find()
	if got.truth == maybe {
		r.draw(func() string { return verdictKey(find()) }, s.Key)
		got = find()
	}
	for got.truth == maybe && got.ask {
		r.oracle.unsure(got.key, r.where(e)+got.why)
		got = find()
	}
	element := got.element
	if got.truth == maybe {
		if element = r.oneOf(e, got); element == nil && len(got.cands) == 0 {
			e.does(ActUnknown, "")
			r.end(Unknown, got.why)
			return true, done, j, stop
		}
	}
	if got.truth == no && got.cond != "" && r.oracle.history(got.cond) {
		e.does(ActUnknown, "")
		r.end(Unknown, "what "+what(s.Map)+" has for the packet is not known")
		return true, done, j, stop
	}
	if element == nil {
		return false, onward, j, goOn
	}
	e.element(s.Map, element)
	return r.ending(e, element.Verdict)
}

// verdictKey tells the outcomes of a lookup apart.
func verdictKey(f found) string {
	if f.element == nil {
		return string('0'+rune(f.truth)) + f.key
	}
	return fmt.Sprintf("%T%v%s", f.element.Verdict, f.element.Verdict, f.element.Comment)
}

// mostCandidates is how many elements are followed when it is not known which
// one is found.
const mostCandidates = 16

// oneOf follows each verdict that a lookup of a key known in part may find, and
// the way of none (nil).
func (r *run) oneOf(e *effect, f found) *netfilter.Element {
	seen := map[string]bool{}
	n := 0
	for _, c := range f.cands {
		k := verdictKey(found{element: c})
		if seen[k] {
			continue
		}
		if n++; n > mostCandidates {
			break
		}
		seen[k] = true
		if r.oracle.unsure("", r.where(e)+f.why) {
			return c
		}
	}
	return nil
}

// settle computes an expression, by forks where it depends on chance or on a
// fact that is not known.
func (r *run) settle(e *effect, x netfilter.Expr) datum {
	compute := func() datum { r.again(); return r.expr(x) }
	d := compute()
	if d.state == unclear {
		r.draw(func() string { d := compute(); return string('0'+rune(d.state)) + d.value + "\x00" + d.last + d.cond }, x)
		d = compute()
	}
	for d.state == unclear && d.ask {
		r.oracle.unsure(d.key, r.where(e)+d.why)
		d = compute()
	}
	return d
}

// assign sets a field; false when the rule ends because there is no value.
func (r *run) assign(e *effect, s netfilter.Assign) bool {
	d := r.settle(e, s.Value)
	if d.state == absent {
		if d.cond == "" || !r.oracle.history(d.cond) {
			return false
		}
		d = puzzle("what is remembered for the packet is not known")
	}
	if d.state == unclear && d.open && !r.oracle.unsure("", r.where(e)+d.why) {
		return false
	}
	if s.To.Family != 0 && s.To.Family != r.family() || s.To.Proto != 0 && s.To.Proto != r.pkt.proto {
		return false
	}
	e.changed = true
	p, n := &r.pkt, uint32(netfilter.Number(d.value))
	why := ""
	if d.state == unclear {
		why = r.where(e) + d.why
	}
	switch s.To.Selector {
	case netfilter.MetaMark:
		p.mark, p.markWhy = n, why
		e.does(ActMark, fmt.Sprintf("0x%x", n))
	case netfilter.MetaPriority:
		p.priority, p.priorityWhy = n, why
		e.does(ActContinue, fmt.Sprintf("priority %x:%x", n>>16, n&0xffff))
	case netfilter.CTMark:
		if !r.tracked() {
			e.does(ActContinue, "connection mark")
			e.say("the packet has no conntrack entry")
			return true
		}
		r.ct.mark, r.ct.markWhy = n, why
		e.does(ActContinue, fmt.Sprintf("connection mark 0x%x", n))
	default:
		return r.assignHeader(e, s.To, d)
	}
	if why != "" {
		e.target = "not known"
		e.say(d.why)
	}
	return true
}

// assignHeader rewrites a header field without conntrack.
func (r *run) assignHeader(e *effect, to netfilter.Selected, d datum) bool {
	if d.state == unclear {
		e.does(ActUnknown, "")
		r.end(Unknown, r.where(e)+"what it writes into the packet is not known: "+d.why)
		return true
	}
	p := &r.pkt
	switch to.Selector {
	case netfilter.IPSaddr, netfilter.IP6Saddr:
		p.src = netfilter.AddrOf(d.value)
	case netfilter.IPDaddr, netfilter.IP6Daddr:
		p.dst = netfilter.AddrOf(d.value)
	case netfilter.SourcePort:
		p.sport = uint16(netfilter.Number(d.value))
	case netfilter.DestinationPort:
		p.dport = uint16(netfilter.Number(d.value))
	case netfilter.IPTTL, netfilter.IP6HopLimit:
		p.ttl = int(netfilter.Number(d.value))
	case netfilter.IPDSCP, netfilter.IP6DSCP:
		p.tos = p.tos&3 | uint8(netfilter.Number(d.value)<<2)
	case netfilter.IPECN:
		p.tos = p.tos&^3 | uint8(netfilter.Number(d.value)&3)
	}
	e.does(ActContinue, "writes "+netfilter.Format([]netfilter.Part{to.Part}, d.value)+" into the packet")
	return true
}

// update puts an element into a set, for the rest of this walk.
func (r *run) update(e *effect, s netfilter.Update) bool {
	parts := []netfilter.Expr{s.Key}
	if c, is := s.Key.(netfilter.Concat); is {
		parts = c.Parts
	}
	key, full := "", true
	for i, x := range parts {
		r.again()
		d := r.expr(x)
		if d.state == absent {
			return false
		}
		full = full && d.state == known
		key += widen(d.value, s.Set, i)
	}
	data := have("")
	if s.Data != nil {
		r.again()
		if data = r.expr(s.Data); data.state == absent {
			return false
		}
	}
	it := "the packet"
	if full {
		it = netfilter.Format(s.Set.Key, key)
	}
	if s.Delete {
		e.does(ActContinue, "removes "+it+" from "+what(s.Set))
		return true
	}
	e.does(ActContinue, "adds "+it+" to "+what(s.Set))
	if !full {
		return true
	}
	r.memory.put(s.Set, key, data)
	return true
}

// rewrite carries out a NAT statement. ok is false when a map has nothing for
// the packet.
func (r *run) rewrite(e *effect, s netfilter.Rewrite) (ok bool, f fate) {
	if s.Family != 0 && s.Family != r.family() {
		e.does(ActCount, "")
		e.say("it is for the other family of addresses")
		return true, goOn
	}
	t := netfilter.Translate{Kind: s.Kind, Random: s.Random, RandomFully: s.RandomFully, Persistent: s.Persistent}
	if s.Addr != nil {
		d := r.settle(e, s.Addr)
		if d.state == absent && d.cond != "" && r.oracle.history(d.cond) {
			e.does(ActUnknown, "")
			r.end(Unknown, "the new address is the one that is remembered, which is not known")
			return true, stop
		}
		switch {
		case d.state == absent:
			return false, goOn
		case d.state == unclear && (d.value == "" || !r.oracle.unsure(d.key, r.where(e)+d.why)):
			if d.value != "" {
				return false, goOn // no element for the packet
			}
			e.does(ActUnknown, "")
			r.end(Unknown, r.where(e)+d.why)
			return true, stop
		}
		if !natTarget(&t, d) {
			e.does(ActUnknown, "")
			r.end(Unknown, r.where(e)+"the map's data are no address")
			return true, stop
		}
	}
	if s.Port != nil {
		d := r.settle(e, s.Port)
		switch {
		case d.state == absent:
			return false, goOn
		case d.state == unclear, len(d.value) != 2, len(d.until()) != 2:
			e.does(ActUnknown, "")
			r.end(Unknown, r.where(e)+"the new port is not known: "+d.why)
			return true, stop
		}
		t.Ports = netfilter.PortRange{First: uint16(netfilter.Number(d.value)), Last: uint16(netfilter.Number(d.until()))}
	}
	f = r.translate(e.at, t)
	e.stepped = true
	e.does(ActCount, "") // the step says the rest
	return true, f
}

// natTarget takes an address, or address and port, apart.
func natTarget(t *netfilter.Translate, d datum) bool {
	a, b := d.value, d.until()
	switch len(a) {
	case 6, 18:
		n := len(a) - 2
		t.Ports = netfilter.PortRange{First: uint16(netfilter.Number(a[n:])), Last: uint16(netfilter.Number(b[n:]))}
		a, b = a[:n], b[:n]
	case 4, 16:
	default:
		return false
	}
	t.Addrs = netfilter.AddrRange{First: netfilter.AddrOf(a), Last: netfilter.AddrOf(b)}
	return true
}
