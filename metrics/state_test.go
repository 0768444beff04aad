package metrics

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"portolan/service"
)

// TestTallyOfChanges: what is counted change by change is what is counted at once.
func TestTallyOfChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := service.Node{Name: "node-1"}
		now := (&service.Snapshot{}).With(node, nil, nil)
		step := &tally{of: now, blocked: map[service.Name]map[string]int{}}
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			svc := web()
			svc.Name.Name = fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "name"))
			if rapid.Bool().Draw(t, "cluster") {
				svc.ExternalPolicy, svc.SourceRanges = service.Cluster, nil
			}
			if rapid.Bool().Draw(t, "local") {
				svc.Ports[0].Endpoints = append(svc.Ports[0].Endpoints, service.Endpoint{Addr: netip.MustParseAddrPort("10.0.0.9:80"), Ready: true, Serving: true, Node: "node-1"})
			}
			put, gone := []*service.Service{svc}, []service.Name(nil)
			if rapid.Bool().Draw(t, "gone") && now.Service(svc.Name) != nil {
				put, gone = nil, []service.Name{svc.Name}
			}
			now = now.With(node, put, gone)
			for c := range now.Changes(step.of) {
				step.add(node, c.Old, service.IPv4, -1)
				step.add(node, c.New, service.IPv4, 1)
			}
			step.of = now
		}
		whole := &tally{of: now, blocked: map[service.Name]map[string]int{}}
		for svc := range now.All() {
			whole.add(node, svc, service.IPv4, 1)
		}
		if diff := cmp.Diff(whole, step, cmp.AllowUnexported(tally{}), cmpopts.IgnoreFields(tally{}, "of")); diff != "" {
			t.Fatal(diff)
		}
	})
}
