package verify

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// Effect is what a change means to those who use a Service.
type Effect uint8

// The effects, of coming from A to B.
const (
	Otherwise Effect = iota // both or neither are what the Service asks for
	Mended                  // only B is
	Worsened                // only A is
	Untold                  // one of them cannot be told for sure
)

func (e Effect) String() string {
	return [...]string{"otherwise", "mended", "worsened", "cannot be told"}[e]
}

// Comparison is how two hosts, A and B, differ in what they do with the traffic of Services.
type Comparison struct {
	Modes    [2]string // of the Service rules: iptables, nftables, ipvs, "" for none
	Owners   [2]Owner  // of the Service rules
	Ports    int       // Service ports
	Compared int       // packets followed through both
	Changes  []Change  // by Service, kind, frontend and client
	// Assumptions are those of both.
	Assumptions []string
}

// Change is one frontend at which one kind of client finds something else.
type Change struct {
	Service  string // "default/web:http"
	Kind     string // "ClusterIP", "NodePort", ...
	Frontend string // "10.96.0.10:80/tcp"
	Client   string // "pod", "node", "outside", ...
	Effect   Effect
	Sides    [2]Side
	Asked    string // by the Service
	Why      string
}

// Side is what one of the hosts does.
type Side struct {
	Verdict string // "10.244.1.5:8080; masqueraded", "reject", ...
	AsAsked bool
	Rule    string // that decides, "" where none does
	Owner   Owner  // of that rule
	Trace   *trace.Answer
}

// Compare follows every kind of client to every frontend on two hosts, and tells
// where something else becomes of it. Both inputs have the same Services.
func Compare(a, b Input) Comparison {
	p := &pair{[2]*world{newWorld(a), newWorld(b)}}
	for f, addrs := range p.sides[1].nodePortAddrs {
		for _, addr := range addrs {
			if own := p.sides[0].nodePortAddrs; !slices.Contains(own[f], addr) {
				own[f] = append(own[f], addr)
			}
		}
	}
	var out Comparison
	var found changes
	eachService(a.Services, p.service, found.merge)
	for i, w := range p.sides {
		out.Modes[i], out.Owners[i] = w.mode(), w.proxy
	}
	out.Ports, out.Compared, out.Changes = found.ports, found.compared, found.list
	out.Assumptions = found.assumed.sorted()
	slices.SortFunc(out.Changes, func(x, y Change) int {
		return cmp.Or(strings.Compare(x.Service, y.Service), strings.Compare(x.Kind, y.Kind), strings.Compare(x.Frontend, y.Frontend), strings.Compare(x.Client, y.Client))
	})
	return out
}

// pair is two hosts with the same Services. Clients are those of the first.
type pair struct{ sides [2]*world }

// changes collects what differs. Each worker has its own.
type changes struct {
	ports, compared int
	list            []Change
	assumed         assumptions
}

// merge adds what another worker found.
func (c *changes) merge(o *changes) {
	c.ports, c.compared, c.list = c.ports+o.ports, c.compared+o.compared, append(c.list, o.list...)
	c.assumed.add(slices.Collect(maps.Keys(o.assumed)))
}

// service compares all that a Service asks for.
func (p *pair) service(s *service.Service, found *changes) {
	first := p.sides[0]
	for f, pf := range first.decided(s) {
		found.ports++
		for fe := range first.won(f, pf) {
			for _, to := range first.targets(f, fe) {
				for _, c := range first.callers(f, pf, to) {
					p.call(pf, to, c, found)
				}
			}
		}
	}
}

// seen is one side of a call.
type seen struct {
	call
	fate fate
	diff difference
	ok   bool // as the Service asks
}

// call has a client call one address and port on both sides. All of it is traced tersely;
// only what differs is traced again with every step.
func (p *pair) call(pf service.PortFrontends, to target, c client, found *changes) {
	var at [2]seen
	proto, _ := netfilter.ProtoByName(string(to.fe.Protocol))
	for i, w := range p.sides {
		at[i] = w.see(to, c, proto, w.terse)
		found.assumed.add(at[i].answer.Assumptions)
	}
	found.compared++
	if at[0].fate.same(at[1].fate) {
		return
	}
	change := Change{Service: pf.Name.String(), Kind: to.fe.Kind.String(), Frontend: to.to.String() + "/" + string(to.fe.Protocol), Client: c.name}
	for i, w := range p.sides { // once more, with all that a report says
		at[i] = w.see(to, c, proto, w.in.Tracer)
		change.Sides[i] = w.side(&at[i])
	}
	change.Asked = expectedText(&at[0].call)
	change.Effect, change.Why = effectOf(at), p.why(pf, at)
	found.list = append(found.list, change)
}

// see has a client call, and judges what becomes of it.
func (w *world) see(to target, c client, proto uint8, t *trace.Tracer) seen {
	s := seen{call: call{client: c, target: to, flow: w.flow(c, to.to, proto)}}
	s.want = w.expect(&to.fe, c, s.flow.Src)
	s.answer = t.Trace(s.flow)
	if w.listens(&s.call) {
		s.fate, s.ok = w.fateOfListening(&s.call), true
		return s
	}
	s.fate = w.fateOf(&s.call)
	s.diff, s.ok = w.judge(&s.call)
	return s
}

// side tells what a host does, and which of its rules decides.
func (w *world) side(s *seen) Side {
	a := s.answer
	out := Side{Verdict: s.fate.String(), AsAsked: s.ok, Trace: &a}
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		if o.Share.Sign() == 0 {
			continue
		}
		step := decider(o)
		if at := slices.IndexFunc(o.Steps, func(x trace.Step) bool { return x.Action == trace.ActDNAT }); step == nil && at >= 0 {
			step = &o.Steps[at]
		}
		if step != nil {
			out.Rule, out.Owner = ruleName(step), w.ownerOfStep(step)
		}
		break
	}
	return out
}

// effectOf says what the difference means for who uses the Service.
func effectOf(at [2]seen) Effect {
	switch a, b := at[0], at[1]; {
	case !a.fate.certain || !b.fate.certain:
		return Untold
	case b.ok && !a.ok:
		return Mended
	case a.ok && !b.ok:
		return Worsened
	}
	return Otherwise
}

// why tells what makes the difference: what a mode cannot do, what a rule does that
// the Service does not ask for, or what the Service leaves open.
func (p *pair) why(pf service.PortFrontends, at [2]seen) string {
	var out []string
	for i, w := range p.sides {
		if at[i].ok {
			continue
		}
		text := w.ipvsReason(pf, &at[i])
		if text == "" {
			text = string(at[i].diff.code) + ": " + at[i].diff.actual
		}
		out = append(out, [...]string{"A: ", "B: "}[i]+text)
	}
	if len(out) == 0 {
		out = append(out, leftOpen(at))
	}
	return strings.Join(out, "; ")
}

// leftOpen tells how two ways differ that are both what the Service asks for.
func leftOpen(at [2]seen) string {
	a, b := at[0].fate, at[1].fate
	refused := func(f fate) bool {
		return !slices.ContainsFunc(f.ends, func(e end) bool { return e.what < untranslated })
	}
	switch {
	case refused(a) && refused(b):
		return "nobody answers either way; only how clients are told is another"
	case a.remembers != b.remembers:
		return "only whether clients are remembered is another, which the Service does not ask for"
	}
	return "the Service asks for neither of the two"
}

// ipvsReason tells what IPVS cannot do that the Service asks for, "" if it is not
// that.
func (w *world) ipvsReason(pf service.PortFrontends, s *seen) string {
	if w.mode() != "ipvs" {
		return ""
	}
	if s.target.to.Addr().IsLoopback() {
		return "IPVS does not see what the node sends to 127.0.0.1"
	}
	other := w.asIPVS(pf, s.call)
	if sameWant(other.want, s.want) {
		return ""
	}
	if _, ok := w.judge(&other); !ok {
		return ""
	}
	switch {
	case s.want.closed:
		return "in ipvs mode source ranges do not bind the node itself"
	case s.want.Verdict != service.Forward:
		return "in ipvs mode policy Local without an endpoint on the node falls back to all endpoints"
	case len(other.want.Endpoints) < len(s.want.Endpoints):
		return "in ipvs mode policy Local also holds for clients on the node"
	}
	return "in ipvs mode one virtual server answers all clients of an address, whatever the policy says of them"
}
