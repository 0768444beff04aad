package e2e

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// TestChangeOfLayout: a restart with the other layout of iptables mode, and back. No
// connection fails meanwhile, affinity is remembered, and afterwards everything is
// answered by rules of the new layout alone.
func TestChangeOfLayout(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if !b.isStandard() {
			t.Skip("this mode has one layout, or the other test begins with it")
		}
		compact := b
		compact.flags = compactLayout
		scenario := baseScenario(t)
		scenario.manifests = bytes.ReplaceAll(scenario.manifests, []byte("timeoutSeconds: 2}"), []byte("timeoutSeconds: 600}"))
		c := newCluster(t, b, scenario)
		traffic := c.traffic()
		kept := c.keeps(t)
		for _, next := range []portolan{compact, b} {
			for _, n := range c.Nodes() {
				if err := c.stops[n.Name](); err != nil {
					t.Errorf("stop %s: %v", n.Name, err)
				}
				stop, err := next.Start(t.Context(), n, c.dir, c.scenario.args, c.logs[n.Name])
				if err != nil {
					t.Fatal(err)
				}
				c.stops[n.Name] = stop
			}
			rules := c.rules(t)
			isCompact := slices.Equal(next.flags, compactLayout)
			if strings.Contains(rules, ":KUBE-PORTOLAN-IP-") != isCompact || strings.Contains(rules, ":KUBE-SEP-") == isCompact {
				t.Errorf("rules after a start with %q:\n%s", next.flags, rules)
			}
			if now := c.keeps(t); now != kept {
				t.Errorf("affinity led to %s, and with %q to %s", kept, next.flags, now)
			}
		}
		if err := traffic(); err != nil {
			t.Error(err)
		}
		for _, f := range c.scenario.flows {
			if err := c.check(f); err != nil {
				t.Errorf("%s\n\t%v", f.line, err)
			}
		}
		c.count("restart", len(c.scenario.flows))
	})
}

// keeps calls a Service with affinity and returns who answered.
func (c *cluster) keeps(t *testing.T) string {
	t.Helper()
	o := c.try(c.Client, lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.0.11:80"), Timeout: patience})
	if o.Verdict != lab.Answered {
		t.Errorf("a Service with affinity: %v", o)
	}
	return o.Pod
}
