package metrics

import (
	"context"
	"iter"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"portolan/agent"
	"portolan/dataplane"
	"portolan/service"
)

// rules counts iptables rules by table: those that are there, and those that the
// last attempt wrote.
type rules struct {
	total, last *prometheus.GaugeVec

	mu     sync.Mutex
	there  map[tableOf]int
	writes map[tableOf]int // of the attempt under way
}

type tableOf struct {
	family service.Family
	table  string
}

var ruleTables = []string{"filter", "nat"}

func newRules(r *prometheus.Registry) *rules {
	return &rules{
		total:  gauge(r, kubeProxy("sync_proxy_rules_iptables_total", "Rules of Services in a table."), "table", "ip_family"),
		last:   gauge(r, kubeProxy("sync_proxy_rules_iptables_last", "Rules that the last attempt wrote to a table."), "table", "ip_family"),
		there:  map[tableOf]int{},
		writes: map[tableOf]int{},
	}
}

// CountRules returns the families with backends whose rules are counted, in
// iptables mode; in another mode they are as they were.
func (m *Metrics) CountRules(families []agent.Family) []agent.Family {
	if m.rules == nil {
		return families
	}
	var out []agent.Family
	for _, f := range families {
		out = append(out, agent.Family{Family: f.Family, Backend: countedBackend{f.Backend, f.Family, m.rules}})
	}
	return out
}

// countedBackend counts what passes it.
type countedBackend struct {
	agent.Backend
	family service.Family
	rules  *rules
}

// Observe counts the objects of each table on the way; half a look counts nothing.
func (b countedBackend) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		seen := map[string]int{}
		for o, err := range b.Backend.Observe(ctx) {
			if err == nil && o.Body != "" {
				seen[table(o.Key.Container)]++
			}
			if !yield(o, err) {
				return // what was seen is not all
			}
		}
		b.rules.mu.Lock()
		defer b.rules.mu.Unlock()
		for _, t := range ruleTables {
			b.rules.there[tableOf{b.family, t}] = seen[t]
		}
	}
}

// Apply counts what a write changes.
func (b countedBackend) Apply(ctx context.Context, p dataplane.Plan) error {
	err := b.Backend.Apply(ctx, p)
	b.rules.mu.Lock()
	defer b.rules.mu.Unlock()
	for _, c := range p.Changes {
		key := tableOf{b.family, table(c.Container)}
		if c.Keyed {
			b.rules.writes[key] += bodies(c.Created) + len(c.Replaced)
		} else if !c.Remove {
			b.rules.writes[key] += bodies(c.Lines)
		}
		if err == nil { // else a full look follows
			b.rules.there[key] += bodies(c.Created) - bodies(c.Deleted)
		}
	}
	return err
}

// wrote ends an attempt.
func (r *rules) wrote(result agent.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range ruleTables {
		key := tableOf{result.Family, t}
		r.total.WithLabelValues(t, result.Family.String()).Set(float64(r.there[key]))
		r.last.WithLabelValues(t, result.Family.String()).Set(float64(r.writes[key]))
		delete(r.writes, key)
	}
}

func table(container string) string {
	name, _, _ := strings.Cut(container, "/")
	return name
}

// bodies counts what is written: claims are not.
func bodies(objects []dataplane.Object) (n int) {
	for _, o := range objects {
		if o.Body != "" {
			n++
		}
	}
	return n
}
