package trace

import (
	"net/netip"
	"strconv"

	"portolan/netfilter"
)

// track is conntrack at PREROUTING and OUTPUT: it finds or makes the entry.
// A packet that was looped back brings its entry along.
func (r *run) track() {
	if r.ct.state != 0 {
		return
	}
	if r.known != nil {
		r.ct = *r.known
		return
	}
	p := &r.pkt
	orig := netfilter.Tuple{Src: p.src, Dst: p.dst, SrcPort: p.sport, DstPort: p.dport}
	if r.flow.Invalid {
		r.ct.state = netfilter.StateInvalid
		return
	}
	if i, ok := r.tracer.flows[flowKey{p.proto, orig}]; ok && (p.sport != 0 || !hasPorts(p.proto)) {
		r.found(&r.tracer.host.Flows[i], orig)
		return
	}
	if len(r.tracer.host.Flows) > 0 && p.sport == 0 && hasPorts(p.proto) {
		r.assumed.add("the source port was not given: the packet begins a new connection")
	}
	if p.proto == netfilter.TCP && !r.begins(p.flags) {
		r.ct.state = netfilter.StateInvalid
		return
	}
	r.ct.state = netfilter.StateNew
	r.ct.orig, r.ct.answer = orig, orig.Reverse()
}

// begins reports whether conntrack makes an entry for a TCP segment that belongs
// to none: for a SYN, and for a plain ACK where nf_conntrack_tcp_loose lets it take
// connections up in their middle. The rest is INVALID (Linux 6.18).
func (r *run) begins(flags uint8) bool {
	switch flags &^ (netfilter.PSH | netfilter.URG) {
	case netfilter.SYN:
		return true
	case netfilter.ACK:
		loose, _ := r.tracer.host.Sysctl("net.netfilter.nf_conntrack_tcp_loose")
		return loose != "0"
	}
	return false
}

// found takes over an existing entry: its NAT is carried out, nat is not asked.
func (r *run) found(e *netfilter.ConntrackEntry, tuple netfilter.Tuple) {
	r.ct = conn{state: netfilter.StateEstablished, entry: e, orig: e.Orig, answer: e.Reply, dnatSet: true, snatSet: true, dnat: e.HasDNAT(), snat: e.HasSNAT(), mark: e.Mark}
	r.ct.ipvs = r.ct.dnat && r.tracer.host.ServerFor(e.Proto, e.Orig.Dst, e.Orig.DstPort, 0) != nil
	switch {
	case tuple == e.Reply && tuple != e.Orig:
		r.ct.reply = true
	case e.Unreplied:
		r.ct.state = netfilter.StateNew
	}
}

// natOpen reports whether the nat table is asked at a hook: only for the first
// packet of a tracked connection, once for each side.
func (r *run) natOpen(h netfilter.Hook) bool {
	if r.ct.state != netfilter.StateNew || r.ct.entry != nil {
		return false
	}
	if h == netfilter.Prerouting || h == netfilter.Output {
		return !r.ct.dnatSet
	}
	return !r.ct.snatSet
}

// finishNAT closes the side a hook is for and, for known connections, carries
// out what the entry says.
func (r *run) finishNAT(h netfilter.Hook) bool {
	dst := h == netfilter.Prerouting || h == netfilter.Output
	if h == netfilter.Forward || !r.tracked() {
		return true
	}
	if r.ct.entry == nil {
		if dst {
			r.ct.dnatSet = true
		} else {
			r.ct.snatSet = true
		}
		return true
	}
	old := r.pkt.dst
	p, e := &r.pkt, r.ct.entry
	switch {
	case dst && !r.ct.reply && r.ct.dnat && !r.ct.ipvs:
		p.dst, p.dport = e.Reply.Src, e.Reply.SrcPort
	case dst && r.ct.reply && r.ct.snat:
		p.dst, p.dport = e.Orig.Src, e.Orig.SrcPort
	case !dst && !r.ct.reply && r.ct.snat:
		p.src, p.sport = e.Reply.Dst, e.Reply.DstPort
		if r.strayed() {
			r.end(Dropped, "the connection was masqueraded as "+p.src.String()+" for another interface than "+p.out+": the kernel drops the packet and forgets the connection")
			return false
		}
	case !dst && r.ct.reply && r.ct.dnat && !r.ct.ipvs:
		p.src, p.sport = e.Orig.Dst, e.Orig.DstPort
	}
	if h == netfilter.Output && old != p.dst {
		return r.routeOut("the destination changed")
	}
	return true
}

// strayed reports whether a connection's source came from MASQUERADE for another
// interface than the one the packet leaves by: it is an address of another interface,
// and for this one MASQUERADE would have given one of its own. Where a rule gives the
// very address by SNAT, it may have been that.
func (r *run) strayed() bool {
	p := &r.pkt
	if in := r.tracer.host.Interface(p.out); in == nil || in.Has(p.src) || !r.tracer.host.Has(p.src) || !in.HasFamily(netfilter.FamilyOf(p.src)) {
		return false
	}
	masquerade, snat := r.tracer.sourceRules(p.src)
	return masquerade && (!snat || r.oracle.unsure("masqueraded", "whether "+p.src.String()+" came from MASQUERADE or from SNAT is not known"))
}

// sourceRules reports whether some rule masquerades, and whether one gives an address
// by SNAT or NETMAP.
func (t *Tracer) sourceRules(a netip.Addr) (masquerade, snat bool) {
	for _, rule := range t.host.Rules() {
		x, is := rule.Target.(netfilter.Translate)
		masquerade = masquerade || is && x.Kind == netfilter.Masquerade
		snat = snat || is && (x.Kind == netfilter.SNAT && x.Addrs.Contains(a) || x.Kind == netfilter.NetMap)
	}
	return masquerade, snat
}

// translate carries out a NAT target and records the step.
func (r *run) translate(at ruleAt, t netfilter.Translate) fate {
	dst := r.hook == netfilter.Prerouting || r.hook == netfilter.Output
	wrong := r.base.Type != netfilter.NATChain
	switch t.Kind {
	case netfilter.DNAT, netfilter.Redirect:
		wrong = wrong || !dst
	case netfilter.SNAT:
		wrong = wrong || dst
	case netfilter.Masquerade:
		wrong = wrong || r.hook != netfilter.Postrouting
	}
	if wrong {
		r.step(at, ActUnknown, t.Kind.String(), "the kernel refuses this target here")
		r.end(Unknown, t.Kind.String()+" in "+r.table.Name+" "+r.base.Name+", which the kernel refuses")
		return stop
	}
	if dst {
		return r.translateDst(at, t)
	}
	return r.translateSrc(at, t)
}

// pickAddr takes one address of a range; the kernel chooses by a hash of the
// addresses, which counts as chance.
func (r *run) pickAddr(rng netfilter.AddrRange) netip.Addr {
	var all []netip.Addr
	for a := rng.First; a.IsValid() && len(all) < 256; a = a.Next() {
		all = append(all, a)
		if a == rng.Last {
			break
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	weights := make([]int, len(all))
	for i := range weights {
		weights[i] = 1
	}
	return all[r.oracle.among(weights)]
}

// translateDst carries out DNAT, NETMAP and REDIRECT.
func (r *run) translateDst(at ruleAt, t netfilter.Translate) fate {
	p := &r.pkt
	addr, port := p.dst, p.dport
	act := ActDNAT
	switch t.Kind {
	case netfilter.DNAT:
		if t.Addrs.First.IsValid() {
			addr = r.pickAddr(t.Addrs)
		}
	case netfilter.NetMap:
		addr, act = mapPrefix(p.dst, t.Prefix), ActNetmap
	case netfilter.Redirect:
		act = ActRedirect
		if addr = r.redirectAddr(); !addr.IsValid() {
			r.step(at, act, "", "")
			r.end(Dropped, "REDIRECT finds no address on "+devName(p.in))
			return stop
		}
	}
	if t.Ports != (netfilter.PortRange{}) && hasPorts(p.proto) {
		switch {
		case t.Base != 0:
			port = t.Ports.First + (p.dport - t.Base)
		case t.Ports.First == t.Ports.Last:
			port = t.Ports.First
		case t.Random || t.RandomFully:
			port = 0
		case !t.Ports.Contains(p.dport):
			port = t.Ports.First
		}
	}
	r.step(at, act, endpoint(addr, port), "")
	if addr != p.dst || port != p.dport {
		r.ct.dnat = true
	}
	p.dst, p.dport = addr, port
	r.ct.answer.Src, r.ct.answer.SrcPort = addr, port
	r.ct.dnatSet = true
	return natSet
}

// redirectAddr is the first address of the arrival interface, or loopback for
// local packets.
func (r *run) redirectAddr() netip.Addr {
	p := &r.pkt
	if r.hook == netfilter.Output {
		if p.dst.Is4() {
			return netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		return netip.IPv6Loopback()
	}
	if in := r.tracer.host.Interface(p.in); in != nil {
		for _, a := range in.Addresses {
			if a.Prefix.Addr().Is4() == p.dst.Is4() {
				return a.Prefix.Addr()
			}
		}
	}
	return netip.Addr{}
}

// mapPrefix is NETMAP: the network part of the prefix, the host part kept.
func mapPrefix(a netip.Addr, p netip.Prefix) netip.Addr {
	if p.Addr().BitLen() != a.BitLen() {
		return a
	}
	from, to := a.AsSlice(), p.Masked().Addr().AsSlice()
	for i := range from {
		keep := 8 - min(8, max(0, p.Bits()-8*i))
		mask := byte(1<<keep - 1)
		to[i] |= from[i] & mask
	}
	out, _ := netip.AddrFromSlice(to)
	return out
}

// translateSrc carries out SNAT, NETMAP and MASQUERADE.
func (r *run) translateSrc(at ruleAt, t netfilter.Translate) fate {
	p := &r.pkt
	addr, port := p.src, p.sport
	act := ActSNAT
	switch t.Kind {
	case netfilter.SNAT:
		if t.Addrs.First.IsValid() {
			addr = r.pickAddr(t.Addrs)
		}
	case netfilter.NetMap:
		addr, act = mapPrefix(p.src, t.Prefix), ActNetmap
	case netfilter.Masquerade:
		act = ActMasquerade
		var ok bool
		if addr, ok = r.masqueradeAddr(); !ok {
			r.step(at, act, "", "")
			r.end(Dropped, "MASQUERADE finds no address on "+devName(p.out))
			return stop
		}
	}
	switch {
	case !hasPorts(p.proto):
	case t.Random || t.RandomFully:
		port = 0
	case t.Ports == netfilter.PortRange{} || t.Ports.Contains(p.sport):
	case t.Ports.First == t.Ports.Last:
		port = t.Ports.First
	default:
		port = 0
	}
	target := endpoint(addr, 0)
	if t.Ports.First == t.Ports.Last && port != 0 {
		target += " port " + strconv.Itoa(int(port))
	}
	if !addr.IsValid() {
		target = "the address of " + devName(p.out)
	}
	r.step(at, act, target, "")
	if addr != p.src || port != p.sport {
		r.ct.snat = true
	}
	if port == 0 && p.sport != 0 {
		p.drawn = drawnFrom(t.Ports, p.sport)
	}
	p.src, p.sport = addr, port
	r.ct.answer.Dst, r.ct.answer.DstPort = addr, port
	r.ct.snatSet = true
	return natSet
}

// drawnFrom is where the kernel draws a new source port from: the range of the
// rule, else that of ports with the same rights.
func drawnFrom(rule netfilter.PortRange, old uint16) netfilter.PortRange {
	switch {
	case rule != netfilter.PortRange{}:
		return rule
	case old < 512:
		return netfilter.PortRange{First: 1, Last: 511}
	case old < 1024:
		return netfilter.PortRange{First: 600, Last: 1023}
	}
	return netfilter.PortRange{First: 1024, Last: 65535}
}

// masqueradeAddr is the address of the output interface towards the next hop.
// The address is invalid, and ok true, when the host's addresses were not
// given.
func (r *run) masqueradeAddr() (addr netip.Addr, ok bool) {
	if !r.tracer.host.Have.Interfaces {
		r.assumed.add("no addresses of the host are known: which source MASQUERADE gives is not known")
		return netip.Addr{}, true
	}
	towards := r.pkt.dst
	if r.next.Via.IsValid() {
		towards = r.next.Via
	}
	return r.tracer.host.SourceAddr(r.pkt.out, towards)
}
