package trace

import (
	"net/netip"
	"strconv"

	"portolan/netfilter"
)

// question is what the kernel asks its routing tables for the packet.
func (r *run) question() netfilter.Question {
	p := &r.pkt
	return netfilter.Question{Src: p.src, Dst: p.dst, In: p.in, Mark: p.mark, Proto: p.proto, SrcPort: p.sport, DstPort: p.dport}
}

// lookup asks, and chooses one way of a multipath route by chance.
func (r *run) lookup() netfilter.Route {
	route := r.tracer.fib.Lookup(r.question()).Route
	if len(route.Hops) > 0 {
		weights := make([]int, len(route.Hops))
		for i, h := range route.Hops {
			weights[i] = max(h.Weight, 1)
		}
		h := route.Hops[r.oracle.among(weights)]
		route.Via, route.Dev = h.Via, h.Dev
	}
	return route
}

// routeIn is the decision after PREROUTING: deliver, forward or discard.
func (r *run) routeIn() {
	if !r.tracer.fib.Known() {
		r.routeInBlind()
		return
	}
	if why := r.martian(); why != "" {
		r.endBy(ByLoopback, Dropped, why)
		return
	}
	if r.multicastIn() {
		return
	}
	route := r.lookup()
	// A route that refuses does so before anybody asks for the source.
	refuses := route.Type == netfilter.RouteUnreachable || route.Type == netfilter.RouteProhibit || route.Type == netfilter.RouteBlackhole || route.Type == netfilter.RouteNone
	if why := r.sourceRefused(); why != "" && !refuses {
		r.endBy(BySource, Dropped, why)
		return
	}
	if r.pkt.src.IsValid() && route.Type == netfilter.RouteUnicast {
		r.noteInterface(route.Dev)
	}
	dst := r.pkt.dst.String()
	switch route.Type {
	case netfilter.RouteLocal, netfilter.RouteBroadcast, netfilter.RouteAnycast:
		r.decision = dst + " is local"
		r.input()
	case netfilter.RouteUnicast:
		r.next = route
		r.decision = "routed: " + addrsText(r.pkt.dst, route.Via, route.Dev)
		r.toForward(route)
	case netfilter.RouteUnreachable, netfilter.RouteProhibit:
		if r.pkt.dst.Is6() && r.pkt.dst != r.flow.Dst && r.onBridgePort() {
			// br_netfilter routes what it has translated, and does not answer.
			r.endBy(ByRoute, Dropped, "the route to "+dst+" is "+route.Type.String()+": br_netfilter discards the packet without an answer")
			return
		}
		r.endBy(ByRoute, Rejected, "the route to "+dst+" is "+route.Type.String()+": the host answers with an ICMP error")
	case netfilter.RouteBlackhole:
		r.endBy(ByRoute, Dropped, "the route to "+dst+" is a blackhole")
	default:
		r.endBy(ByRoute, Dropped, "no route leads to "+dst+": the host answers that the network is unreachable")
	}
}

// allHosts are the groups that every host has joined.
var allHosts = map[netip.Addr]bool{netip.MustParseAddr("224.0.0.1"): true, netip.MustParseAddr("ff02::1"): true}

// multicastIn decides about what comes in for a group, and reports whether it was such
// a packet. No unicast route counts for it.
func (r *run) multicastIn() bool {
	dst := r.pkt.dst
	switch {
	case !dst.IsMulticast():
		return false
	case allHosts[dst]:
		r.decision = dst.String() + " is a group of every host"
		r.input()
	default:
		r.end(Unknown, "whether the host has joined the group "+dst.String()+" is not known; without multicast routing it goes no further")
	}
	return true
}

// routeInBlind goes on without any routes.
func (r *run) routeInBlind() {
	dst := r.pkt.dst.String()
	local, known := r.tracer.fib.Local(r.pkt.dst)
	if !known {
		local, known = r.oracle.decided("local " + dst)
	}
	if known && local {
		r.decision = dst + " is local"
		r.input()
		return
	}
	r.assumed.add("no routes of the host are known; " + dst + " is taken for another host's, and forwarding for enabled")
	r.next = netfilter.Route{Dev: unknownDev}
	r.decision = dst + " is taken for another host's"
	r.pkt.ttl--
	r.forward(unknownDev)
}

func (r *run) noteInterface(dev string) {
	if r.tracer.host.Have.Interfaces && r.tracer.host.Interface(dev) == nil {
		r.assumed.add("interface " + dev + " is not described: taken to have no address")
	}
}

// toForward checks forwarding and TTL, and whether the packet stays within
// its bridge.
func (r *run) toForward(route netfilter.Route) {
	p := &r.pkt
	sameBridge := r.bridgeIn && route.Dev == p.in && r.bridgeNF()
	// In IPv6 a rewritten frame is bridged even where nothing is forwarded
	// (seen with Linux 6.18).
	if bridgedSix := sameBridge && p.dst.Is6(); !bridgedSix && !r.forwardingOn() {
		return
	}
	if sameBridge {
		// br_netfilter: the destination NAT chose is on the same bridge.
		p.bridge = p.in
		r.decision = "bridged within " + p.in + " to " + p.dst.String() + ", not routed"
		r.forward(p.in)
		return
	}
	if p.ttl <= 1 {
		r.end(Dropped, "the TTL has run out: the host answers time exceeded")
		return
	}
	p.ttl--
	if p.dst.Is4() {
		p.priority, p.priorityWhy = priorities[p.tos&0x1e>>1], ""
	}
	r.forward(route.Dev)
}

// priorities are what the kernel makes of the TOS field when it forwards IPv4:
// its classes best effort, filler, bulk, interactive and interactive bulk.
var priorities = [16]uint32{0, 1, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4}

// forwardingOn ends the walk where the host does not forward.
func (r *run) forwardingOn() bool {
	family := netfilter.FamilyOf(r.pkt.dst)
	name := "net.ipv4.ip_forward"
	if family == netfilter.IPv6 {
		name = "net.ipv6.conf.all.forwarding"
	}
	on, given := r.tracer.host.Forwarding(family, r.pkt.in)
	if !given {
		if !r.tracer.host.Described && !r.tracer.host.Have.Sysctls {
			r.assumed.add(name + " was not given: taken for 1, as on every node that forwards")
			return true
		}
		r.assumed.add(name + " was not given: taken for the kernel's default, 0")
	}
	if !on {
		r.endBy(ByForwarding, Dropped, "the host does not forward ("+name+" is 0)")
	}
	return on
}

// martian tells why the kernel discards the packet for its addresses alone.
func (r *run) martian() string {
	p := &r.pkt
	if !p.dst.Is4() {
		if p.dst != r.flow.Dst && r.onBridgePort() && r.tracer.fib.Lookup(r.question()).Dev == p.in {
			return "" // stays on its bridge, where nobody asks
		}
		return r.fromLoopback6()
	}
	localnet, _ := r.tracer.confSysctl(p.in, "route_localnet")
	switch {
	case p.dst.IsLoopback() && localnet == "0":
		return "martian destination: " + p.dst.String() + " cannot come in by " + devName(p.in) + " (route_localnet is 0)"
	case p.src.IsLoopback() && localnet == "0":
		return "martian source: " + p.src.String() + " cannot come in by " + devName(p.in) + " (route_localnet is 0)"
	case p.src.IsMulticast() || p.src == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "martian source: " + p.src.String() + " is no host's address"
	}
	return ""
}

// fromLoopback6 tells why an IPv6 packet with ::1 in it is discarded, "" if it may
// pass: no packet from a link may have it (RFC 4291 2.5.3).
func (r *run) fromLoopback6() string {
	p := &r.pkt
	if p.in == "lo" || !p.dst.Is6() || !p.src.IsLoopback() && !p.dst.IsLoopback() {
		return ""
	}
	return "::1 cannot come in by " + devName(p.in)
}

// sourceRefused is the check of the source address: own addresses do not come
// from outside, and with rp_filter the route back must exist (2) and leave by
// the arrival interface (1).
func (r *run) sourceRefused() string {
	p := &r.pkt
	if !p.src.Is4() || p.in == unknownDev {
		return ""
	}
	accept, _ := r.tracer.confSysctl(p.in, "accept_local")
	if local, known := r.tracer.fib.Local(p.src); known && local && accept == "0" && r.strictAboutOwn(p.src) {
		return "martian source: " + p.src.String() + " is the host's own address and comes in by " + p.in
	}
	mode, given := r.tracer.confSysctl(p.in, "rp_filter")
	if !given {
		r.assumed.add("net.ipv4.conf." + p.in + ".rp_filter was not given: taken for the kernel's default, 0")
	}
	if mode != "1" && mode != "2" {
		return ""
	}
	back := r.tracer.fib.Lookup(netfilter.Question{Dst: p.src, Src: p.dst, Proto: p.proto})
	switch {
	case back.Type != netfilter.RouteUnicast && back.Type != netfilter.RouteLocal:
		return "rp_filter: no route leads back to " + p.src.String()
	case mode == "1" && !r.viaDev(back.Route, p.in):
		return "rp_filter is 1 and the route back to " + p.src.String() + " leaves by " + devName(back.Dev) + ", not by " + p.in
	}
	return ""
}

// strictAboutOwn reports whether the kernel notices that a source is its own. Without
// rp_filter and routing rules it looks only at the addresses of interfaces, and
// 127.0.0.2, say, is none.
func (r *run) strictAboutOwn(a netip.Addr) bool {
	h := r.tracer.host
	mode, _ := r.tracer.confSysctl(r.pkt.in, "rp_filter")
	return !a.IsLoopback() || mode == "1" || mode == "2" || a == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || customRules(h)
}

// customRules reports whether there are more IPv4 routing rules than the three that
// every host has.
func customRules(h *netfilter.Host) bool {
	n := 0
	for _, rule := range h.RoutingRules {
		if rule.Family != netfilter.IPv6 {
			n++
		}
	}
	return n > len(netfilter.DefaultRules())
}

// routeOut is the decision before OUTPUT, or the one after something changed
// there; why says what changed, "" for the first one.
func (r *run) routeOut(why string) bool {
	dst := r.pkt.dst.String()
	if !r.tracer.fib.Known() {
		local, known := r.tracer.fib.Local(r.pkt.dst)
		r.next = netfilter.Route{Dev: unknownDev}
		if known && local {
			r.next = netfilter.Route{Type: netfilter.RouteLocal, Dev: "lo"}
		} else {
			r.assumed.add("no routes of the host are known; " + dst + " is taken for another host's")
		}
		r.setOut(why)
		return true
	}
	in := r.pkt.in
	r.pkt.in = ""
	route := r.lookup()
	r.pkt.in = in
	again := ""
	if why != "" {
		again = " once more, because " + why
	}
	switch route.Type {
	case netfilter.RouteLocal:
		route.Dev = "lo"
		r.decision = "routed" + again + ": " + dst + " is local"
	case netfilter.RouteUnicast, netfilter.RouteBroadcast, netfilter.RouteMulticast, netfilter.RouteAnycast:
		r.decision = "routed" + again + ": " + addrsText(r.pkt.dst, route.Via, route.Dev)
		r.noteInterface(route.Dev)
		if lo, _ := r.tracer.confSysctl(route.Dev, "route_localnet"); r.pkt.src.Is4() && r.pkt.src.IsLoopback() && lo == "0" {
			r.endBy(ByLoopback, Dropped, "a packet from "+r.pkt.src.String()+" cannot leave by "+route.Dev+" (route_localnet is 0)")
			return false
		}
	case netfilter.RouteBlackhole, netfilter.RouteUnreachable, netfilter.RouteProhibit:
		r.endBy(ByRoute, Dropped, "the route to "+dst+" is "+route.Type.String()+": sending fails")
		return false
	default:
		r.endBy(ByRoute, Dropped, "no route leads to "+dst+": sending fails, the network is unreachable")
		return false
	}
	r.next = route
	r.setOut(why)
	return true
}

// setOut sets the interface that -o sees in OUTPUT; a new decision within
// OUTPUT shows only afterwards.
func (r *run) setOut(why string) {
	if why == "" {
		r.pkt.out = r.next.Dev
	}
}

// reroute follows a chain in OUTPUT: mangle (the route type) routes anew when
// mark, source or destination changed, nat when the destination did.
func (r *run) reroute() bool {
	b, p := &r.before, &r.pkt
	switch {
	case b.dst != p.dst && r.base.Type != netfilter.FilterChain:
		return r.routeOut("the destination changed")
	case r.base.Type == netfilter.RouteChain && (b.mark != p.mark || b.src != p.src):
		return r.routeOut("the mark is now 0x" + strconv.FormatUint(uint64(p.mark), 16))
	}
	return true
}
