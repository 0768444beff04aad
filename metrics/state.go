package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"portolan/agent"
	"portolan/service"
)

// state tells of the Services as they are when somebody asks: what waits, and
// what does not answer. It costs what changed since it was asked last.
type state struct {
	agent    *agent.Agent
	families []service.Family

	mu      sync.Mutex
	tallies map[service.Family]*tally
}

// tally sums up the Services of one family as they were written.
type tally struct {
	of                           *service.Snapshot
	services, internal, external int // internal and external lack local endpoints
	blocked                      map[service.Name]map[string]int
}

func desc(o prometheus.Opts, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(o.Namespace, "", o.Name), o.Help, labels, nil)
}

var (
	serviceChanges   = desc(kubeProxy("sync_proxy_rules_service_changes_total", "Changes of Services."))
	endpointChanges  = desc(kubeProxy("sync_proxy_rules_endpoint_changes_total", "Changes of the endpoints of Services."))
	servicesPending  = desc(kubeProxy("sync_proxy_rules_service_changes_pending", "Services whose change waits to be written in some family."))
	endpointsPending = desc(kubeProxy("sync_proxy_rules_endpoint_changes_pending", "Services whose endpoints' change waits to be written in some family."))
	noLocal          = desc(kubeProxy("sync_proxy_rules_no_local_endpoints_total", "Service ports with traffic policy Local and endpoints, but none on this node."), "traffic_policy", "ip_family")
	serviceCount     = desc(portolan("services", "Services that are programmed in a family."), "ip_family")
	notAnswering     = desc(portolan("service_blocked_frontends", "Addresses and ports of a Service that refuse or drop some or all traffic, by reason. A Service without any is not there."), "namespace", "service", "ip_family", "reason")
)

// Describe tells of every metric.
func (s *state) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{serviceChanges, endpointChanges, servicesPending, endpointsPending, noLocal, serviceCount, notAnswering} {
		out <- d
	}
}

// Collect looks at what was written last.
func (s *state) Collect(out chan<- prometheus.Metric) {
	total, pending := s.agent.Changed(), agent.Changes{}
	for _, f := range s.families {
		now := s.agent.Pending(f)
		pending = agent.Changes{Services: max(pending.Services, now.Services), Endpoints: max(pending.Endpoints, now.Endpoints)}
		s.family(out, f)
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, n int) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(n))
	}
	send(serviceChanges, prometheus.CounterValue, total.Services)
	send(endpointChanges, prometheus.CounterValue, total.Endpoints)
	send(servicesPending, prometheus.GaugeValue, pending.Services)
	send(endpointsPending, prometheus.GaugeValue, pending.Endpoints)
}

// family sends what depends on Services. It is counted from what changed since it was
// asked for last, so that a scrape costs what changed.
func (s *state) family(out chan<- prometheus.Metric, f service.Family) {
	snapshot := s.agent.Written(f)
	if snapshot == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tallies[f]
	if t == nil || !t.of.Node.Equal(snapshot.Node) {
		t = &tally{of: &service.Snapshot{Node: snapshot.Node}, blocked: map[service.Name]map[string]int{}}
		s.tallies[f] = t
	}
	for c := range snapshot.Changes(t.of) {
		t.add(t.of.Node, c.Old, f, -1)
		t.add(snapshot.Node, c.New, f, 1)
	}
	t.of = snapshot
	for name, reasons := range t.blocked {
		for reason, n := range reasons {
			out <- prometheus.MustNewConstMetric(notAnswering, prometheus.GaugeValue, float64(n), name.Namespace, name.Name, f.String(), reason)
		}
	}
	out <- prometheus.MustNewConstMetric(serviceCount, prometheus.GaugeValue, float64(t.services), f.String())
	out <- prometheus.MustNewConstMetric(noLocal, prometheus.GaugeValue, float64(t.internal), "internal", f.String())
	out <- prometheus.MustNewConstMetric(noLocal, prometheus.GaugeValue, float64(t.external), "external", f.String())
}

// add counts a Service, or with sign -1 takes it off; nil is none.
func (t *tally) add(node service.Node, svc *service.Service, f service.Family, sign int) {
	if svc == nil {
		return
	}
	ports := service.Decide(node, svc, f)
	if len(ports) == 0 {
		return
	}
	t.services += sign
	blocked := map[string]int{}
	for _, p := range ports {
		in, ext := lacksLocal(svc, p)
		t.internal, t.external = t.internal+sign*in, t.external+sign*ext
		for _, frontend := range p.Frontends {
			for reason := range blockedBy(frontend, p.Choice) {
				blocked[reason]++
			}
		}
	}
	delete(t.blocked, svc.Name)
	if sign > 0 && len(blocked) > 0 {
		t.blocked[svc.Name] = blocked
	}
}

// lacksLocal tells for each policy whether it is Local and endpoints are elsewhere
// only.
func lacksLocal(svc *service.Service, p service.PortFrontends) (internal, external int) {
	if !p.Choice.Any || len(p.Choice.Local) > 0 {
		return 0, 0
	}
	if svc.InternalPolicy == service.Local {
		internal = 1
	}
	if svc.ExternalPolicy == service.Local {
		external = 1
	}
	return internal, external
}

// The reasons for which a frontend refuses or drops.
const (
	noEndpoints      = "no_endpoints"
	noLocalEndpoints = "no_local_endpoints"
	sourceRange      = "source_range" // drops clients outside of the ranges
)

// blockedBy tells what keeps clients from a frontend: the reason labels of the metric.
func blockedBy(f service.Frontend, c service.Choice) map[string]bool {
	out := map[string]bool{}
	if f.SourceRanges != nil {
		out[sourceRange] = true
	}
	for _, class := range service.Classes() {
		switch r := f.Route(class); {
		case r.Verdict == service.Forward:
		case c.Any && r.Policy == service.Local:
			out[noLocalEndpoints] = true
		default:
			out[noEndpoints] = true
		}
	}
	return out
}
