package trace

import (
	"net/netip"
	"strings"

	"portolan/netfilter"
)

// run is one walk of one packet: every fork is answered by the oracle.
type run struct {
	tracer  *Tracer
	oracle  *oracle
	assumed *notes
	flow    Flow

	pkt     packet
	ct      conn
	hook    netfilter.Hook
	table   *netfilter.Table
	base    *netfilter.Chain // of the table, that the hook has called
	entry   netfilter.Hook
	arrival string

	bridgeIn bool            // the packet arrives by a bridge
	next     netfilter.Route // where the packet goes, after the last decision
	decision string          // the last routing decision in words
	before   packet          // as it entered the hook, to see what OUTPUT changed
	ended    bool            // a target has accepted: the table is done

	note  *effect  // of the rule that runs
	drawn []uint32 // random numbers of the statement
	used  int      // how many of them were asked for

	known  *conn  // what conntrack will find, of an answer
	memory memory // of this packet and of those before it

	hops    []Hop
	steps   []Step
	over    bool
	verdict Verdict
	cause   Cause
	reason  string
}

// end sets the verdict.
func (r *run) end(v Verdict, reason string) {
	if !r.over {
		r.over, r.verdict, r.reason = true, v, reason
	}
}

// endBy is end for what no rule decides.
func (r *run) endBy(c Cause, v Verdict, reason string) {
	if !r.over {
		r.cause = c
	}
	r.end(v, reason)
}

// start puts the flow's packet at its entry and walks.
func (r *run) start(f Flow) {
	r.flow = f
	r.pkt = packet{src: f.Src, dst: f.Dst, sport: f.SrcPort, dport: f.DstPort, proto: f.Proto, mark: f.Mark, ttl: int(f.TTL), flags: f.TCPFlags, icmpType: f.ICMPType, physIn: f.PhysIn}
	if r.pkt.flags == 0 {
		r.pkt.flags = netfilter.SYN
	}
	if r.pkt.icmpType == 0 {
		r.pkt.icmpType = 8
		if f.Proto == netfilter.ICMPv6 {
			r.pkt.icmpType = 128
		}
	}
	r.pkt.local = r.isLocal()
	r.entry = netfilter.Prerouting
	if r.pkt.local || f.Hook == netfilter.Output {
		r.entry = netfilter.Output
		r.send()
		return
	}
	r.findArrival()
	r.arrive()
}

// isLocal decides whether a process of the host sends the packet.
func (r *run) isLocal() bool {
	f := r.flow
	switch {
	case f.Hook == netfilter.Prerouting || f.In != "":
		return false
	case f.Local:
		return true
	}
	local, known := r.tracer.fib.Local(f.Src)
	switch {
	case !known:
		r.assumed.add("no addresses of the host are known; " + f.Src.String() + " is taken for another host's")
	case local:
		r.assumed.add(f.Src.String() + " is an address of the host, so a local process sends the packet")
	}
	return local
}

// findArrival chooses the interface the packet arrives by.
func (r *run) findArrival() {
	r.arrival = r.flow.In
	if r.arrival == "" {
		r.arrival = unknownDev
		route := r.tracer.fib.Lookup(netfilter.Question{Dst: r.flow.Src})
		switch {
		case route.Type == netfilter.RouteUnicast && route.Dev != "":
			r.arrival = route.Dev
			r.assumed.add("the packet arrives by " + route.Dev + ", which the route to " + r.flow.Src.String() + " uses")
		case r.tracer.fib.Known():
			r.assumed.add("no route leads to " + r.flow.Src.String() + ": which interface the packet arrives by is not known")
		default:
			r.assumed.add("no routes of the host are known: which interface the packet arrives by is not known")
		}
	}
	r.pkt.in = r.arrival
	yes, sure := r.tracer.host.IsBridge(r.arrival)
	r.bridgeIn = yes
	if yes && !sure {
		r.assumed.add(r.arrival + " is taken for a bridge by its name")
	}
}

// bridgeNF reports whether bridged packets are shown to iptables.
func (r *run) bridgeNF() bool {
	name := "net.bridge.bridge-nf-call-iptables"
	if r.pkt.dst.Is6() {
		name = "net.bridge.bridge-nf-call-ip6tables"
	}
	v, given := r.tracer.host.Sysctl(name)
	if !given {
		r.assumed.add(name + " was not given: taken for the kernel's default, " + v)
	}
	return v != "0"
}

// hookAt runs all tables of a hook; false when the walk is over.
func (r *run) hookAt(h netfilter.Hook) bool {
	r.hook = h
	p := &r.pkt
	r.hops = append(r.hops, Hop{Hook: h, In: p.in, Out: p.out, Src: p.src, Dst: p.dst, SrcPort: p.sport, DstPort: p.dport, Mark: p.mark, TTL: p.ttl, Route: r.decision})
	r.decision = ""
	behind := stages[h]
	var tie netfilter.Hooked // the last chain that did something
	for _, b := range r.tracer.hooks[hookKey{netfilter.FamilyOf(p.dst), h}] {
		for len(behind) > 0 && behind[0].priority < b.Priority() {
			if !r.stage(behind[0].does, h) {
				return false
			}
			behind = behind[1:]
		}
		if b.Chain.Type == netfilter.NATChain && !r.natOpen(h) {
			continue
		}
		r.before = r.pkt
		from := len(r.steps)
		f := r.chain(b)
		r.noteTie(&tie, b, from)
		if f == stop {
			return false
		}
		if h == netfilter.Output && !r.reroute() {
			return false
		}
	}
	for _, x := range behind {
		if !r.stage(x.does, h) {
			return false
		}
	}
	return true
}

// stages are what the kernel does at a hook beside chains, by priority: it runs
// after chains of that priority. What runs after nat, such as filter in OUTPUT,
// sees the packet of a known connection translated.
var stages = [...][]stage{
	netfilter.Prerouting:  {{netfilter.ConntrackPriority, tracking}, {-100, translating}},
	netfilter.Input:       {{99, serving}, {100, translating}},
	netfilter.Forward:     {{100, serving}},
	netfilter.Output:      {{netfilter.ConntrackPriority, tracking}, {-100, translating}, {-98, serving}},
	netfilter.Postrouting: {{100, translating}},
}

type stage struct {
	priority int
	does     stageKind
}

type stageKind uint8

const (
	tracking stageKind = iota
	translating
	serving // IPVS
)

// stage is false when the walk is over.
func (r *run) stage(k stageKind, h netfilter.Hook) bool {
	switch k {
	case tracking:
		r.track()
		return true
	case translating:
		return r.finishNAT(h)
	case serving:
		return r.ipvs(h)
	default:
		panic("trace: no such stage")
	}
}

// noteTie says when two tables have done something to the packet at one place
// of a hook, so that their order matters, which a dump tells in part.
func (r *run) noteTie(last *netfilter.Hooked, b netfilter.Hooked, from int) {
	if !acted(r.steps[from:]) {
		return
	}
	a := *last
	*last = b
	if a.Chain == nil || a.Table == b.Table || a.Priority() != b.Priority() || (a.Chain.Type == netfilter.NATChain && b.Chain.Type == netfilter.NATChain && a.Chain.Priority != b.Chain.Priority) {
		return
	}
	if a.Table.Variant != netfilter.Native && b.Table.Variant != netfilter.Native {
		return // legacy and nft iptables: in the order that is always taken
	}
	r.assumed.add(a.Table.Name + " " + a.Chain.Name + " and " + b.Table.Name + " " + b.Chain.Name + " have the same priority: which was registered last, and runs first, is taken from the order of the listing")
}

// acted reports whether rules did more than match.
func acted(steps []Step) bool {
	for i := range steps {
		switch steps[i].Action {
		case ActCount, ActJump, ActGoto, ActReturn, ActAccept, ActContinue:
		case ActPolicy:
			if steps[i].Target == "DROP" {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// arrive walks a packet that came in from outside.
func (r *run) arrive() {
	bridged := r.bridgedAsIs()
	if bridged && !r.bridgeNF() {
		r.end(Forwarded, "bridged within "+r.pkt.in+": with bridge-nf-call 0 no rule sees it")
		return
	}
	orig := r.pkt.dst
	// Without a bridge in front the kernel looks at the addresses ahead of all rules.
	if why := r.fromLoopback6(); why != "" && !r.onBridgePort() {
		r.endBy(ByLoopback, Dropped, why)
		return
	}
	if !r.hookAt(netfilter.Prerouting) {
		return
	}
	if bridged && r.pkt.dst == orig {
		r.pkt.bridge = r.pkt.in
		r.decision = "bridged within " + r.pkt.in + ", not routed"
		r.forward(r.pkt.in)
		return
	}
	r.routeIn()
}

// bridgedAsIs reports whether the frame is addressed to another port of the
// bridge it arrived by: its destination is directly connected there.
func (r *run) bridgedAsIs() bool {
	if !r.bridgeIn || !r.tracer.fib.Known() {
		return false
	}
	route := r.tracer.fib.Lookup(netfilter.Question{Dst: r.pkt.dst})
	return route.Type == netfilter.RouteUnicast && route.Dev == r.pkt.in && !route.Via.IsValid()
}

// input delivers the packet to a local process.
func (r *run) input() {
	r.pkt.out = ""
	if r.hookAt(netfilter.Input) {
		r.end(Input, "delivered to a local process")
	}
}

// forward sends the packet on through FORWARD.
func (r *run) forward(out string) {
	r.pkt.out = out
	if !r.hookAt(netfilter.Forward) {
		return
	}
	if r.pkt.bridge != "" {
		r.pkt.in = ""
	}
	if r.hookAt(netfilter.Postrouting) {
		r.end(Forwarded, "leaves by "+devName(out))
	}
}

// devName is an interface in words.
func devName(dev string) string {
	if dev == unknownDev || dev == "" {
		return "an interface that is not known"
	}
	return dev
}

// send walks a packet that a local process, or a pod network, puts into OUTPUT.
func (r *run) send() {
	if !r.routeOut("") {
		return
	}
	if !r.hookAt(netfilter.Output) {
		return
	}
	toSelf := r.next.Type == netfilter.RouteLocal
	r.pkt.out = r.next.Dev
	if toSelf {
		r.pkt.out = "lo"
	}
	if !r.hookAt(netfilter.Postrouting) {
		return
	}
	if !toSelf {
		r.end(Output, "leaves by "+devName(r.pkt.out))
		return
	}
	if r.ct.confirmed = r.tracked(); r.ct.state == netfilter.StateInvalid {
		r.ct = conn{} // it has no entry to bring along: conntrack looks again
	}
	// The packet comes back by the loopback interface, with its conntrack
	// entry attached: nat is not asked again, routing is not done again.
	r.pkt.in, r.pkt.out = "lo", ""
	r.decision = "looped back"
	if r.hookAt(netfilter.Prerouting) {
		r.input()
	}
}

// outcome sums the walk up.
func (r *run) outcome() Outcome {
	whys, conds := r.oracle.doubts()
	p := &r.pkt
	o := Outcome{
		Share: r.oracle.share(), Certain: len(whys) == 0, Doubts: whys, Conditions: conds,
		Verdict: r.verdict, Cause: r.cause, Reason: r.reason, Src: p.src, SrcPort: p.sport, Dst: p.dst, DstPort: p.dport, Proto: p.proto,
		DNAT: r.ct.dnat && !r.ct.reply, Masquerade: r.ct.snat && !r.ct.reply, Mark: p.mark, Hops: r.hops, Steps: r.steps, Out: p.out, memory: r.memory, ct: r.ct,
	}
	if r.verdict == Unknown || len(conds) > 0 {
		o.Certain = false
	}
	if len(whys) > 0 && r.verdict == Unknown {
		o.Doubts = whys
	}
	return o
}

// addrsText is a route in words.
func addrsText(a netip.Addr, via netip.Addr, dev string) string {
	parts := []string{a.String()}
	if via.IsValid() {
		parts = append(parts, "via "+via.String())
	}
	if dev != "" {
		parts = append(parts, "dev "+dev)
	}
	return strings.Join(parts, " ")
}
