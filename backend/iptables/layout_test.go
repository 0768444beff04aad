package iptables

import (
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// What another layout left is taken over without a gap, whether it is older or
// newer: what is the same stays untouched, what only the other one has goes, and
// afterwards the layout is ours.
func TestInvariant11OtherLayoutsAreAdopted(t *testing.T) {
	for name, c := range map[string]struct {
		left    string
		changes []string
	}{
		"older, which is kube-proxy's too": {
			"*filter\n-D KUBE-SERVICES " + layoutRule.Body + "\nCOMMIT\n",
			[]string{filterServices},
		},
		"newer": {
			"*filter\n-D KUBE-SERVICES " + layoutRule.Body + "\n-A KUBE-SERVICES " + strings.Replace(layoutRule.Body, "layout 1", "layout 2", 1) + "\nCOMMIT\n" +
				"*nat\n:KUBE-PORTOLAN-HAIRPIN - [0:0]\n-A KUBE-PORTOLAN-HAIRPIN -m mark --mark 0x1/0x1 -j MASQUERADE\n" +
				"-A POSTROUTING -m comment --comment \"portolan hairpin\" -j KUBE-PORTOLAN-HAIRPIN\nCOMMIT\n",
			[]string{filterServices, "nat/KUBE-PORTOLAN-HAIRPIN", "nat/POSTROUTING"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			forVariants(t, func(t *testing.T, tool *iptables.Tool) {
				b := backendFor(tool)
				node, services := everyShape(b.options.Family)
				s := dataplane.NewSync(b)
				fill(t, s, b, node, services)
				_, err := s.Apply(t.Context())
				must(t, err)
				whole := save(t, tool)
				if !strings.Contains(whole, `-A KUBE-SERVICES -m comment --comment "portolan layout 1: `) {
					t.Errorf("no layout in\n%s", whole)
				}
				must(t, tool.Restore(t.Context(), []byte(c.left)))
				next := dataplane.NewSync(b)
				fill(t, next, b, node, services)
				plan, err := next.Diff(t.Context())
				must(t, err)
				var changes []string
				for _, ch := range plan.Changes {
					changes = append(changes, ch.Container)
				}
				if !slices.Equal(changes, c.changes) {
					t.Errorf("a start changes %q, want %q", changes, c.changes)
				}
				_, err = next.Apply(t.Context())
				must(t, err)
				if got := save(t, tool); got != whole {
					t.Errorf("after a start:\n%s\nwant\n%s", got, whole)
				}
			})
		})
	}
}
