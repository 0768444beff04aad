package nftables

import (
	"strings"
	"testing"

	"portolan/dataplane"
)

// TestListsComeWithTheFirstWhoNeedsThem: at a first start addresses are served a stage
// before their other ports are refused, and then what leads on to chains is there.
func TestListsComeWithTheFirstWhoNeedsThem(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			b := New(Options{Family: f.Family, MasqueradeBit: 14})
			sync := dataplane.NewSync(b)
			program(t, b, sync, nodeOf(f), sticky(f, 1, 3))
			u := update{b: b, fresh: true}
			if err := u.sort(sync.Plan()); err != nil {
				t.Fatal(err)
			}
			seen := map[string]int{}
			for stage := range u.steps {
				for _, list := range u.steps[stage] {
					for _, s := range list {
						seen[s.set] = stage
					}
				}
			}
			if seen[serviceIPs] != stageServe || seen[clusterIPs] != stageLast {
				t.Errorf("stages of sets: %v", seen)
			}
			for set, stage := range seen {
				if stage > seen[serviceIPs] && (set == balancers || set == affinityLearn || strings.HasSuffix(set, portsSuffix)) {
					t.Errorf("%s comes in stage %d, service-ips in %d", set, stage, seen[serviceIPs])
				}
			}
		})
	}
}
