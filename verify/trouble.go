package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// trouble collects what calls find. Each worker has its own.
type trouble struct {
	ports, flows, uncertain int
	rows                    []Row
	assumed                 assumptions
	groups                  map[groupKey]*group
}

// groupKey is what makes differences one finding: the same code for the same
// Service port or, where one thing stops the traffic of many, that thing.
type groupKey struct {
	code   Code
	object string
}

// group is one finding in the making.
type group struct {
	finding Finding
	// order makes the example independent of which worker came first.
	order   string
	ports   map[string]bool // Service ports
	clients map[string]bool // "ClusterIP: pod"
	shared  bool            // the object is a cause, not a Service port
	also    []string        // codes of what else is wrong with the Service port
}

// assumptions are what was taken for granted of a host, each once. The zero value has none.
type assumptions map[string]bool

// add leaves out what depends on the flow alone, which is no news about the host.
func (a *assumptions) add(list []string) {
	for _, text := range list {
		if strings.HasPrefix(text, "the packet arrives by ") {
			continue
		}
		if *a == nil {
			*a = assumptions{}
		}
		(*a)[text] = true
	}
}

func (a assumptions) sorted() []string { return slices.Sorted(maps.Keys(a)) }

// add files one difference.
func (t *trouble) add(w *world, pf service.PortFrontends, c *call, d difference) {
	f := Finding{Code: d.code, Severity: d.severity, Object: pf.Name.String(), Actual: d.actual, Expected: expectedText(c)}
	f.Owner = w.ownerOf(d.outcome)
	if d.step != nil {
		f.Owner = w.ownerOfStep(d.step)
	}
	shared := w.cause(&f, c, d)
	f.Fix = cmp.Or(f.Fix, restartIsNoFix(w, c, d), fixOf(w, d, &f))
	if f.Link == "" {
		f.Link = knownAs(&f, d)
	}
	key := groupKey{f.Code, f.Object}
	order := c.target.fe.Kind.String() + " " + c.client.name + " " + c.target.to.String() + " " + pf.Name.String()
	if t.groups == nil {
		t.groups = map[groupKey]*group{}
	}
	g := t.groups[key]
	if g == nil {
		g = &group{finding: f, order: order, ports: map[string]bool{}, clients: map[string]bool{}, shared: shared}
		a := c.answer
		g.finding.Trace = &a
		t.groups[key] = g
	}
	if order < g.order {
		severity := max(f.Severity, g.finding.Severity)
		a := c.answer
		f.Trace = &a
		g.finding, g.order = f, order
		g.finding.Severity = severity
	}
	g.finding.Severity = max(g.finding.Severity, f.Severity)
	g.ports[pf.Name.String()] = true
	g.clients[c.target.fe.Kind.String()+" from "+c.client.name] = true
}

// ownerOf is the owner of what decided an outcome: the rule that stopped it,
// translated it, or else the last one that did anything.
func (w *world) ownerOf(o *trace.Outcome) Owner {
	if s := decider(o); s != nil {
		return w.ownerOfStep(s)
	}
	for i := len(o.Steps) - 1; i >= 0; i-- {
		switch s := &o.Steps[i]; s.Action {
		case trace.ActDNAT, trace.ActMasquerade, trace.ActSNAT, trace.ActRedirect, trace.ActNetmap, trace.ActUnknown, trace.ActQueue:
			return w.ownerOfStep(s)
		}
	}
	return w.proxy
}

// ruleName names the rule of a step.
func ruleName(s *trace.Step) string {
	if s.Rule == 0 {
		return s.Table + " " + s.Chain + " policy"
	}
	return fmt.Sprintf("%s %s rule %d", s.Table, s.Chain, s.Rule)
}

// cause makes a finding one about what stops the traffic, where that is a thing of
// its own, and tells whether it is.
func (w *world) cause(f *Finding, c *call, d difference) bool {
	o := d.outcome
	hook := netfilter.Prerouting
	if c.flow.Local {
		hook = netfilter.Output
	}
	switch d.code {
	case ForeignDrop:
		f.Object, f.Expected = ruleName(d.step), "traffic of Services passes"
	case ForwardingOff:
		f.Object, f.Expected, f.Owner = "net.ipv4.ip_forward", "1", kernelOwner
		if o.Dst.Is6() {
			f.Object = "net.ipv6.conf.all.forwarding"
		}
	case BridgeFilterOff:
		f.Object, f.Expected, f.Owner = bridgeSysctl(o.Dst), "1, with the module br_netfilter", kernelOwner
	case LocalnetOff:
		f.Object, f.Expected, f.Owner = "net.ipv4.conf.all.route_localnet", "1 while NodePorts answer on 127.0.0.1", kernelOwner
	case ReversePath:
		f.Object, f.Expected, f.Owner = "rp_filter of "+o.Hops[0].In, "the route back leaves by the interface that the packet came by", kernelOwner
	case RouteMissing:
		f.Object, f.Expected, f.Owner = "route to "+o.Dst.String(), "a route", Owner{}
		if !o.DNAT {
			f.Object = "default route" // a local client needs some route before it is translated
		}
	case ChainLoop:
		f.Object, f.Expected = "chains", "no circle"
	case FrontendMissing, FrontendRefused, MasqueradeMissing, HairpinBroken:
		if d.code == MasqueradeMissing || d.code == HairpinBroken {
			hook = netfilter.Postrouting
		}
		if on, given := w.on(vsConntrack); hook == netfilter.Postrouting && given && !on && w.mode() == "ipvs" {
			*f = ipvsConntrackOff()
			return true
		}
		if !w.unhooked[hook] || d.code == FrontendRefused && o.DNAT {
			return false
		}
		m := w.jumpMissing(w.proxies[0], hook)
		f.Code, f.Object, f.Actual, f.Expected, f.Owner, f.Fix, f.Link = m.Code, m.Object, m.Actual, m.Expected, m.Owner, m.Fix, m.Link
	default:
		return false
	}
	return true
}

// merge adds what another worker found. Of two Findings with one cause that of the
// earlier packet stays, with the greater severity, so that the report does not depend on
// who was faster.
func (t *trouble) merge(o *trouble) {
	t.ports += o.ports
	t.flows += o.flows
	t.uncertain += o.uncertain
	t.rows = append(t.rows, o.rows...)
	t.assumed.add(slices.Collect(maps.Keys(o.assumed)))
	for key, g := range o.groups {
		if t.groups == nil {
			t.groups = map[groupKey]*group{}
		}
		old := t.groups[key]
		if old == nil {
			t.groups[key] = g
			continue
		}
		severity := max(old.finding.Severity, g.finding.Severity)
		if g.order < old.order {
			old.finding, old.order = g.finding, g.order
		}
		old.finding.Severity = severity
		maps.Copy(old.ports, g.ports)
		maps.Copy(old.clients, g.clients)
	}
}

// manyPorts is the number of Service ports from which the same fault is one
// finding, if it is that of at least half of all.
const manyPorts = 4

// report turns groups into findings.
func (t *trouble) report(r *Report) (out []Finding) {
	r.Flows, r.Uncertain = r.Flows+t.flows, r.Uncertain+t.uncertain
	r.Assumptions = append(r.Assumptions, t.assumed.sorted()...)
	slices.SortFunc(t.rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Frontend, b.Frontend))
	})
	r.Rows = t.rows
	t.keepTelling()
	byCode := map[Code][]*group{}
	for _, g := range t.groups {
		byCode[g.finding.Code] = append(byCode[g.finding.Code], g)
	}
	for _, list := range byCode {
		slices.SortFunc(list, func(a, b *group) int {
			return cmp.Or(strings.Compare(a.order, b.order), strings.Compare(a.finding.Object, b.finding.Object))
		})
		if !list[0].shared && len(list) >= manyPorts && 2*len(list) >= t.ports {
			list = []*group{common(list, t.ports)}
		}
		for _, g := range list {
			f := g.finding
			f.Actual += " (" + strings.Join(slices.Sorted(maps.Keys(g.clients)), ", ") + ")"
			if len(g.also) > 0 {
				slices.Sort(g.also)
				f.Actual += "; also " + strings.Join(slices.Compact(g.also), ", ")
			}
			delete(g.ports, f.Object)
			f.Affected = slices.Sorted(maps.Keys(g.ports))
			out = append(out, f)
		}
	}
	return out
}

// rank orders the faults of one Service port, the most telling first: the others
// may come of it.
var rank = []Code{
	FrontendMissing, FrontendRefused, EndpointStale, EndpointMissing, SharesUneven, SourceRangeOpen, RefusalMissing, RefusalDiffers,
	MasqueradeMissing, HairpinBroken, MasqueradeUnwanted, AffinityMissing, AffinityUnwanted, AnswerLost, CannotTell,
}

// keepTelling leaves one finding for each Service port, which mentions the others.
func (t *trouble) keepTelling() {
	best := map[string]*group{}
	for _, g := range t.groups {
		if b := best[g.finding.Object]; !g.shared && (b == nil || slices.Index(rank, g.finding.Code) < slices.Index(rank, b.finding.Code)) {
			best[g.finding.Object] = g
		}
	}
	for key, g := range t.groups {
		if b := best[g.finding.Object]; !g.shared && b != g {
			b.also = append(b.also, string(g.finding.Code))
			b.finding.Severity = max(b.finding.Severity, g.finding.Severity)
			delete(t.groups, key)
		}
	}
}

// common makes one finding of the same fault of many Service ports.
func common(list []*group, all int) *group {
	out := *list[0]
	out.ports, out.clients = map[string]bool{}, map[string]bool{}
	for _, g := range list {
		maps.Copy(out.ports, g.ports)
		maps.Copy(out.clients, g.clients)
		out.finding.Severity = max(out.finding.Severity, g.finding.Severity)
	}
	out.finding.Actual = "for example " + out.finding.Object + ": " + out.finding.Actual
	out.finding.Object = fmt.Sprintf("%d of %d Service ports", len(out.ports), all)
	return &out
}
