package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"portolan/service"
	"portolan/trace"
)

// trouble collects what calls find. Each worker has its own.
type trouble struct {
	ports, flows, uncertain int
	rows                    []Row
	assumed                 map[string]bool
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
}

func (t *trouble) assume(list []string) {
	for _, a := range list {
		// What depends on the flow alone is no news about the host.
		if strings.HasPrefix(a, "the packet arrives by ") {
			continue
		}
		if t.assumed == nil {
			t.assumed = map[string]bool{}
		}
		t.assumed[a] = true
	}
}

// add files one difference.
func (t *trouble) add(w *world, pf service.PortFrontends, c *call, d difference) {
	f := Finding{Code: d.code, Severity: d.severity, Object: pf.Name.String(), Actual: d.actual, Expected: expectedText(c)}
	f.Owner = w.ownerOf(d.outcome)
	shared := false
	switch d.code {
	case ForeignDrop:
		s := decider(d.outcome)
		f.Object, shared = ruleName(s), true
		f.Expected = "traffic of Services passes"
	case HostStops:
		f.Object, shared = hostObject(d.outcome), true
		f.Expected = "the packet goes on"
		f.Owner = Owner{admin, "no rule decides this, but the set-up of the host"}
	}
	f.Fix = fixOf(w, d, &f)
	key := groupKey{d.code, f.Object}
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

// hostObject names what of the host stops a packet.
func hostObject(o *trace.Outcome) string {
	switch o.Cause {
	case trace.ByForwarding:
		if o.Dst.Is6() {
			return "net.ipv6.conf.all.forwarding"
		}
		return "net.ipv4.ip_forward"
	case trace.ByLoopback:
		return "route_localnet"
	case trace.BySource:
		return "rp_filter"
	case trace.ByRoute:
		return "route to " + o.Dst.String()
	}
	return "chains"
}

func (t *trouble) merge(o *trouble) {
	t.ports += o.ports
	t.flows += o.flows
	t.uncertain += o.uncertain
	t.rows = append(t.rows, o.rows...)
	if t.assumed == nil {
		t.assumed = map[string]bool{}
	}
	maps.Copy(t.assumed, o.assumed)
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
func (t *trouble) report(w *world, r *Report) {
	r.Flows, r.Uncertain = r.Flows+t.flows, r.Uncertain+t.uncertain
	r.Assumptions = append(r.Assumptions, slices.Sorted(maps.Keys(t.assumed))...)
	slices.SortFunc(t.rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Frontend, b.Frontend))
	})
	r.Rows = t.rows
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
			delete(g.ports, f.Object)
			f.Affected = slices.Sorted(maps.Keys(g.ports))
			r.Findings = append(r.Findings, f)
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
