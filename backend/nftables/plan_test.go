package nftables

import (
	"flag"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// planOf is the script that makes an empty table hold the Services.
func planOf(t testing.TB, f family, node service.Node, list []*service.Service) string {
	t.Helper()
	b := New(Options{Family: f.Family, MasqueradeBit: 14})
	sync := dataplane.NewSync(&dataplane.Fake{})
	program(t, b, sync, node, list...)
	return b.PlanText(sync.Plan())
}

// TestPlanLoads: nft makes of the script what Apply makes of the plan.
func TestPlanLoads(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			list := mix(f)
			load(t, planOf(t, f, nodeOf(f), list))
			byScript := ruleset(t)
			load(t, "flush ruleset")

			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			program(t, b, sync, nodeOf(f), list...)
			apply(t, sync)
			settle(t, b)
			if byNetlink := ruleset(t); byNetlink != byScript {
				t.Errorf("by netlink (-) and by script (+):\n%s", cmp.Diff(byNetlink, byScript))
			}
		})
	}
}

var updateGolden = flag.Bool("update", false, "write the golden plans anew")

// TestPlanText: the plan of a mix of Services, as it is in testdata.
func TestPlanText(t *testing.T) {
	for _, f := range families {
		file := "testdata/plan." + strings.ToLower(f.Family.String()) + ".nft"
		got := planOf(t, f, nodeOf(f), mix(f))
		if *updateGolden {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// TestPlanOfChanges: changes are commands in the order in which they are written,
// and removals come last.
func TestPlanOfChanges(t *testing.T) {
	f := families[0]
	b := New(Options{Family: f.Family, MasqueradeBit: 14})
	sync := dataplane.NewSync(&dataplane.Fake{})
	list := []*service.Service{f.Web(1, 2), f.Web(2, 2)}
	program(t, b, sync, nodeOf(f), list...)
	if _, err := sync.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaced := f.Web(2, 2)
	replaced.Ports[0].Endpoints[1].Addr = netip.MustParseAddrPort("10.244.9.9:8080")
	program(t, b, sync, nodeOf(f), f.Web(1, 1), replaced, f.Web(3, 0))
	want := `add table ip portolan
add map ip portolan eps-1 { typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport; }
add chain ip portolan lb-1
add chain ip portolan lb-1-masq-outside
add rule ip portolan lb-1 meta priority set none
add rule ip portolan lb-1 dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 1 map @eps-1
add rule ip portolan lb-1 counter drop
add rule ip portolan lb-1-masq-outside ip saddr 10.244.0.0/16 goto lb-1
add rule ip portolan lb-1-masq-outside meta mark set meta mark | 0x00004000 goto lb-1
add element ip portolan eps-1 {
	10.96.0.1 . tcp . 80 . 0 : 10.244.1.1 . 8080
}
delete element ip portolan eps-2 {
	10.96.0.2 . tcp . 80 . 1
}
add element ip portolan eps-2 {
	10.96.0.2 . tcp . 80 . 1 : 10.244.9.9 . 8080
}
add element ip portolan balancers {
	8394:97d6 comment "lb-1-masq-outside" : goto lb-1-masq-outside
}
add element ip portolan cluster-ips {
	10.96.0.3
}
add element ip portolan no-endpoints {
	10.96.0.3 . tcp . 80 : goto refuse
}
delete element ip portolan service-ips {
	10.96.0.1 . tcp . 80
}
add element ip portolan service-ips {
	10.96.0.1 . tcp . 80 : 8394:97d6
}
# what follows is written 100ms later, in a transaction of its own
delete element ip portolan eps-2 {
	10.96.0.1 . tcp . 80 . 0,
	10.96.0.1 . tcp . 80 . 1
}
`
	if diff := cmp.Diff(want, b.PlanText(sync.Plan())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
