package nftables

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan/dataplane"
	"portolan/service"
)

// planOf is the script that makes an empty table hold the Services.
func planOf(t testing.TB, f family, node service.Node, list []*service.Service) string {
	t.Helper()
	b := New(Options{Family: f.family, MasqueradeBit: 14})
	sync := dataplane.NewSync(&dataplane.Fake{})
	program(t, b, sync, node, list...)
	return b.PlanText(sync.Plan())
}

// TestPlanLoads: nft makes of the script what Apply makes of the plan.
func TestPlanLoads(t *testing.T) {
	for _, f := range families {
		t.Run(f.family.String(), func(t *testing.T) {
			inNamespace(t)
			list := f.mix()
			if f.family == service.IPv6 && oldNft(t) { // see TestRoundTrip
				var plain []*service.Service
				for _, s := range list {
					if s.AffinityTimeout == 0 {
						plain = append(plain, s)
					}
				}
				list = plain
			}
			load(t, planOf(t, f, f.node(), list))
			byScript := ruleset(t)
			load(t, "flush ruleset")

			b := live(t, f.family)
			sync := dataplane.NewSync(b)
			program(t, b, sync, f.node(), list...)
			apply(t, sync)
			if byNetlink := ruleset(t); byNetlink != byScript {
				t.Errorf("by netlink (-) and by script (+):\n%s", cmp.Diff(byNetlink, byScript))
			}
		})
	}
}
