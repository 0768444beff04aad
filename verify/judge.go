package verify

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// difference is how an answer of the tracer differs from an expectation.
type difference struct {
	code     Code
	severity Severity
	actual   string
	outcome  *trace.Outcome // that shows it
	step     *trace.Step    // that decides it, nil if none does
}

// call is one packet with what became of it and what should have.
type call struct {
	client client
	target target
	flow   trace.Flow
	answer trace.Answer
	want   expectation
}

// judge holds an answer against what is wanted. ok is true where they agree.
// What could not be told makes a difference uncertain, never an agreement.
func (w *world) judge(c *call) (d difference, ok bool) {
	got := map[netip.AddrPort]*big.Rat{}
	remembers := false
	for i := range c.answer.Outcomes {
		o := &c.answer.Outcomes[i]
		if o.Share.Sign() == 0 {
			remembers = remembers || len(o.Conditions) > 0
			continue
		}
		if d, ok := w.judgeOutcome(c, o); !ok {
			return d, false
		}
		to := netip.AddrPortFrom(o.Dst, o.DstPort)
		if got[to] == nil {
			got[to] = new(big.Rat)
		}
		got[to].Add(got[to], o.Share)
	}
	if c.want.Verdict != service.Forward {
		return d, true
	}
	return w.judgeChoice(c, got, remembers)
}

// judgeOutcome looks at one outcome by itself.
func (w *world) judgeOutcome(c *call, o *trace.Outcome) (d difference, ok bool) {
	d = difference{severity: Error, outcome: o, step: decider(o)}
	to := netip.AddrPortFrom(o.Dst, o.DstPort)
	arrives := o.Verdict == trace.Forwarded || o.Verdict == trace.Input || o.Verdict == trace.Output
	switch {
	case o.Verdict == trace.Unknown:
		d.code, d.severity, d.actual = CannotTell, Warning, o.Reason
	case c.want.Verdict == service.Forward && o.Verdict.Lost() && w.untranslated(c, o):
		d.code, d.actual = FrontendMissing, "no rule translates "+c.target.to.String()+"; what becomes of it then: "+o.Reason
	case c.want.Verdict == service.Forward && o.Verdict.Lost():
		d.code, d.actual = w.lostCode(o), o.Reason
	case c.want.Verdict == service.Forward && !o.DNAT && !c.want.knows(to):
		d.code, d.actual = FrontendMissing, "no rule answers for "+c.target.to.String()+": "+o.Reason
	case c.want.Verdict == service.Forward && !c.want.knows(to):
		d.code, d.actual = EndpointStale, "connections go to "+to.String()+", which is no endpoint"
	case c.want.Verdict == service.Forward:
		return w.judgeSource(c, o)
	case arrives && c.want.closed:
		d.code, d.actual = SourceRangeOpen, "a client at "+c.flow.Src.String()+" reaches "+to.String()
	case arrives && o.DNAT:
		d.code, d.actual = EndpointStale, "connections go to "+to.String()
	case arrives:
		d.code, d.actual = RefusalMissing, "no rule stops the packet: "+o.Reason
		if o.Verdict == trace.Input && c.want.Verdict == service.Reject {
			d.severity = Warning
			d.actual += ", who refuses it unless something listens there"
		}
	case o.Cause == trace.ByForwarding:
		d.code, d.actual = ForwardingOff, o.Reason
	case o.Verdict.Lost() && o.Cause != trace.ByRules:
		return difference{}, true // the host has no use for the packet either way
	case o.Verdict == trace.Dropped && c.want.Verdict == service.Reject && w.byOthers(o):
		d.code, d.actual = RefusalMissing, "no rule of the proxy refuses the packet; what becomes of it then: "+o.Reason
	case o.Verdict == trace.Rejected && c.want.Verdict == service.Drop && byIPVS(o):
		return difference{}, true // IPVS cannot but refuse
	case o.Verdict == trace.Rejected && c.want.Verdict == service.Drop, o.Verdict == trace.Dropped && c.want.Verdict == service.Reject:
		d.code, d.actual = RefusalDiffers, o.Reason
	default:
		return difference{}, true
	}
	if !o.Certain {
		d.severity, d.code = Warning, CannotTell
		d.actual = "perhaps: " + d.actual + " (" + strings.Join(append(o.Doubts, o.Conditions...), "; ") + ")"
	}
	return d, false
}

// untranslated tells whether a packet has passed the place where Service rules
// should have translated it, and was lost later by what is not about its
// destination.
func (w *world) untranslated(c *call, o *trace.Outcome) bool {
	if o.DNAT {
		return false
	}
	s := decider(o)
	if s == nil {
		return o.Cause != trace.ByRules && len(o.Hops) > 0 // else the packet never came to a rule
	}
	if !w.ownerOfStep(s).isProxy() {
		return w.behindNAT(s)
	}
	// The proxy's own rule for what it does not know, such as other ports of a
	// cluster IP.
	proto, _ := netfilter.ProtoByName(string(c.target.fe.Protocol))
	return !slices.ContainsFunc(w.served, func(x served) bool {
		return x.proto == proto && x.port == c.target.to.Port() && (!x.addr.IsValid() || x.addr == c.target.to.Addr())
	})
}

// behindNAT tells whether a rule runs after destinations were translated.
func (w *world) behindNAT(s *trace.Step) bool {
	switch s.Hook {
	case netfilter.Prerouting:
		return false
	case netfilter.Output:
		return s.Table != netfilter.Raw && s.Table != netfilter.Mangle
	}
	return true
}

// byOthers tells whether somebody else than the proxy stopped a packet.
func (w *world) byOthers(o *trace.Outcome) bool {
	s := decider(o)
	return s != nil && !w.ownerOfStep(s).isProxy()
}

// lostCode tells who loses a packet that should arrive.
func (w *world) lostCode(o *trace.Outcome) Code {
	switch o.Cause {
	case trace.ByForwarding:
		return ForwardingOff
	case trace.ByLoopback:
		return LocalnetOff
	case trace.BySource:
		return ReversePath
	case trace.ByRoute:
		return RouteMissing
	}
	if o.Verdict == trace.Loop {
		return ChainLoop
	}
	if w.byOthers(o) {
		return ForeignDrop
	}
	return FrontendRefused
}

// mode is that of the rules in use, "" without any.
func (w *world) mode() string {
	if len(w.proxies) == 0 {
		return ""
	}
	return w.proxies[0].mode
}

// byIPVS tells whether a virtual server decided.
func byIPVS(o *trace.Outcome) bool {
	return len(o.Steps) > 0 && o.Steps[len(o.Steps)-1].Table == "ipvs"
}

// decider is the step that decided a verdict, nil if none did.
func decider(o *trace.Outcome) *trace.Step {
	if len(o.Steps) == 0 || o.Cause != trace.ByRules || !o.Verdict.Lost() {
		return nil
	}
	s := &o.Steps[len(o.Steps)-1]
	switch s.Action {
	case trace.ActDrop, trace.ActReject, trace.ActPolicy:
		return s
	}
	return nil
}

// judgeSource looks at the source address that an endpoint sees, and at the way
// of its answer.
func (w *world) judgeSource(c *call, o *trace.Outcome) (difference, bool) {
	d := difference{severity: Error, outcome: o}
	self := o.Dst == c.flow.Src
	want := c.want.Masquerade || self
	local, _ := w.fib.Local(o.Dst)
	if local {
		want = false // what is delivered on this host is not masqueraded
	}
	seen := "the endpoint sees " + o.Src.String()
	if !o.Src.IsValid() { // a masquerade on a host whose addresses are not known
		seen = "the endpoint sees an address of this node"
	}
	switch {
	case want && !o.Masquerade && !w.isOwnSource(o):
		d.code, d.actual = MasqueradeMissing, seen+", the client's own address"
		if self {
			d.code, d.actual = HairpinBroken, "the endpoint "+o.Dst.String()+" that calls itself sees its own address, and its answer never leaves it"
		}
	case !want && !local && o.Masquerade && o.Src != c.flow.Src && !(c.client.away && !w.isNear(o.Dst)):
		d.code, d.actual = MasqueradeUnwanted, seen+" instead of the client's address"
		if c.client.class == service.FromHost {
			d.severity = Warning // it is one of this node's either way
		}
	default:
		return w.judgeAnswer(c, o)
	}
	return d, false
}

// isOwnSource tells whether the source is the address that a masquerade would
// have given anyway.
func (w *world) isOwnSource(o *trace.Outcome) bool {
	if !o.Src.IsValid() {
		return false
	}
	towards := o.Dst
	if r := w.fib.Lookup(netfilter.Question{Dst: o.Dst}); r.Via.IsValid() {
		towards = r.Via
	}
	a, ok := w.host.SourceAddr(o.Out, towards)
	return ok && a == o.Src
}

// judgeAnswer looks whether the answer comes back as the client expects it.
// Where the Service asks to keep the address of a client whose answers need not
// pass here, that is how it is.
func (w *world) judgeAnswer(c *call, o *trace.Outcome) (difference, bool) {
	r := o.Reply
	if r == nil || !r.Passes && !o.DNAT && !o.Masquerade {
		return difference{}, true
	}
	if !o.Src.IsValid() { // masqueraded, to which address is an assumption of its own
		return difference{}, true
	}
	if !o.Masquerade && (c.client.away || c.client.class == service.FromOutside) && !w.isNear(o.Dst) {
		return difference{}, true
	}
	d := difference{code: AnswerLost, severity: Error, actual: r.Reason, outcome: o}
	switch {
	case !r.Passes && w.bridgedBlind(c.flow.Src, o.Dst):
		d.code = BridgeFilterOff
	case !r.Passes:
	case r.Verdict == trace.Unknown:
		d.code, d.severity = CannotTell, Warning
	case r.Verdict.Lost() && len(r.Steps) > 0 && !w.ownerOfStep(&r.Steps[len(r.Steps)-1]).isProxy():
		d.code, d.step, d.actual = ForeignDrop, &r.Steps[len(r.Steps)-1], "the answer is lost: "+r.Reason
	case r.Verdict.Lost():
	case r.Src != c.flow.Dst || r.Dst != c.flow.Src:
		d.actual = fmt.Sprintf("the answer comes back as %v -> %v, which the client does not know", r.Src, r.Dst)
	default:
		return difference{}, true
	}
	return d, false
}

// bridgedBlind tells whether two addresses are on one bridge whose packets
// netfilter does not see.
func (w *world) bridgedBlind(a, b netip.Addr) bool {
	x, y := w.fib.Lookup(netfilter.Question{Dst: a}), w.fib.Lookup(netfilter.Question{Dst: b})
	bridge, _ := w.host.IsBridge(x.Dev)
	on, given := w.on(bridgeSysctl(b))
	return bridge && x.Dev == y.Dev && given && !on
}

func bridgeSysctl(a netip.Addr) string {
	if a.Is6() {
		return "net.bridge.bridge-nf-call-ip6tables"
	}
	return "net.bridge.bridge-nf-call-iptables"
}

// isNear tells whether an address is on this host or on a network of its own
// that is no tunnel.
func (w *world) isNear(a netip.Addr) bool {
	r := w.fib.Lookup(netfilter.Question{Dst: a})
	return r.Type == netfilter.RouteLocal || r.Type == netfilter.RouteUnicast && !r.Via.IsValid() && len(r.Hops) == 0 && !tunnel(w.host, r.Dev)
}

// judgeChoice looks at the endpoints together: who is missing, shares, affinity.
func (w *world) judgeChoice(c *call, got map[netip.AddrPort]*big.Rat, remembers bool) (d difference, ok bool) {
	d = difference{severity: Error, outcome: &c.answer.Outcomes[0]}
	if !c.answer.Certain() {
		return d, true // shares of what is not known mean nothing
	}
	due := w.shares(c)
	var missing, uneven []string
	for i, e := range c.want.Endpoints {
		switch share := got[e.Addr]; {
		case share == nil:
			missing = append(missing, e.Addr.String())
		case due != nil && share.Cmp(due[i]) != 0:
			uneven = append(uneven, e.Addr.String()+" gets "+share.RatString()+" instead of "+due[i].RatString())
		}
	}
	slices.Sort(missing)
	slices.Sort(uneven)
	switch sticky := c.target.fe.Affinity > 0; {
	case len(missing) > 0:
		d.code, d.actual = EndpointMissing, "no connection goes to "+some(missing)
	case len(uneven) > 0:
		d.code, d.actual = SharesUneven, some(uneven)+" of the connections"
	case sticky:
		return w.judgeMemory(c)
	case !sticky && remembers:
		d.code, d.actual = AffinityUnwanted, "clients are kept at the endpoint they had"
	default:
		return d, true
	}
	return d, false
}

// judgeMemory follows the next connection of a client that has been sent to each of
// the endpoints: it goes there again.
func (w *world) judgeMemory(c *call) (difference, bool) {
	for i := range c.answer.Outcomes {
		first := &c.answer.Outcomes[i]
		if first.Share.Sign() == 0 {
			continue
		}
		for _, next := range w.in.Tracer.TraceNext(c.flow, first).Outcomes {
			if next.Share.Sign() == 0 || next.Dst == first.Dst && next.DstPort == first.DstPort && !next.Verdict.Lost() {
				continue
			}
			to := netip.AddrPortFrom(next.Dst, next.DstPort).String()
			if next.Verdict.Lost() {
				to = "nowhere: " + next.Reason
			}
			return difference{code: AffinityMissing, severity: Error, outcome: first,
				actual: fmt.Sprintf("a client that was sent to %v may go to %s by its next connection", netip.AddrPortFrom(first.Dst, first.DstPort), to)}, false
		}
	}
	return difference{}, true
}

// some lists the first of many.
func some(list []string) string {
	const most = 4
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}

// shares are what the endpoints are due, in their order; nil where that depends on
// since when they are there.
func (w *world) shares(c *call) []*big.Rat {
	if svc := w.in.Services.Service(c.target.fe.PortName.Service); svc == nil || svc.SlowStart > 0 {
		return nil
	}
	ratios := service.Ratios(c.want.Endpoints)
	sum := int64(0)
	for _, r := range ratios {
		sum += int64(r)
	}
	out := make([]*big.Rat, len(ratios))
	for i, r := range ratios {
		out[i] = big.NewRat(int64(r), sum)
	}
	return out
}
