package e2e

import (
	"testing"

	"portolan/netfilter/detect"
	"portolan/verify"
)

// TestVerifyPlans: what the proxy plans for the nodes of every scenario, in each
// mode, gives no finding.
func TestVerifyPlans(t *testing.T) {
	t.Parallel()
	program := offlineBinary(t)
	for _, s := range append(readScenarios(t), cellScenario()) {
		for _, mode := range paperModes {
			t.Run(mode+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				o := newOffline(t, s, mode, func(o *offline, n *paperNode, args []string) ([]detect.Text, error) {
					return o.plan(t, n, program, args)
				})
				did.add("verify", count{scenarios: 1, flows: o.verify(t)})
			})
		}
	}
}

// verify checks every node, and returns the number of packets it took.
func (o *offline) verify(t *testing.T) (packets int) {
	t.Helper()
	for name, n := range o.nodes {
		r := verify.Verify(verify.Input{Tracer: n.trace, Services: n.model})
		packets += r.Flows
		for _, f := range r.Findings {
			t.Errorf("%s: %s %s %s: %s; should %s", name, f.Severity, f.Code, f.Object, f.Actual, f.Expected)
		}
	}
	return packets
}
