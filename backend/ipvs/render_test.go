package ipvs

import (
	"flag"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portolan/dataplane"
	"portolan/service"
)

// TestJumpsLeadSomewhere: a rule leads to a chain that is there, whatever NodePorts
// answer on; iptables-restore takes none of a table with a rule that does not.
func TestJumpsLeadSomewhere(t *testing.T) {
	jump := regexp.MustCompile(`-j (KUBE-\S+)$`)
	for _, f := range families {
		for name, prefixes := range map[string][]string{"all": nil, "loopback": {"127.0.0.0/8", "::1/128"}, "none": {"198.51.100.0/24"}} {
			node := self(f)
			for _, p := range prefixes {
				node.NodePorts.Prefixes = append(node.NodePorts.Prefixes, netip.MustParsePrefix(p))
			}
			b := New(Options{Family: f.Family})
			for _, s := range mix(f) {
				objects, err := b.Render(node, s)
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, b.Base(node)...)
				chains := map[string]bool{}
				for _, o := range objects {
					if o.Body != "" || o.Key.Name == "" {
						chains[chainOf(o.Key.Container)] = true
					}
				}
				for _, o := range objects {
					if m := jump.FindStringSubmatch(o.Body); m != nil && !chains[m[1]] {
						t.Errorf("%s, NodePorts on %s, %s: a rule of %s leads to %s, which is not there", f.Family, name, s.Name, o.Key.Container, m[1])
					}
				}
			}
		}
	}
}

// servers renders a Service and returns its virtual servers by name.
func servers(t *testing.T, b *Backend, node service.Node, s *service.Service) map[string]*target {
	t.Helper()
	objects, err := b.Render(node, s)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*target{}
	for _, o := range objects {
		if o.Key.Container == serversContainer {
			if out[o.Key.Name], err = b.parseTarget(o.Body); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// TestScheduler: the Service's own stands above round robin, which stands above that of
// all; with weights there is one that heeds them, where there is.
func TestScheduler(t *testing.T) {
	f := families[0]
	for _, c := range []struct {
		all, own string
		turns    bool
		weight   service.Weight
		want     string
	}{
		{"", "", false, 0, "rr"}, {"lc", "", false, 0, "lc"}, {"lc", "", true, 0, "rr"}, {"lc", "mh", true, 0, "mh"},
		{"", "", false, 3, "wrr"}, {"lc", "", false, 3, "wlc"}, {"lc", "", true, 3, "wrr"}, {"lc", "sh", false, 3, "sh"}, {"", "dh", false, 3, "dh"},
	} {
		b := New(Options{Family: f.Family, Scheduler: c.all})
		s := f.Web(1, 3)
		s.Scheduler, s.AffinityTimeout = c.own, time.Hour
		if c.turns {
			s.Algorithm = service.RoundRobin
		}
		s.Ports[0].Endpoints[1].Weight = c.weight
		got := servers(t, b, self(f), s)["10.96.0.1 tcp 80"]
		if got == nil || got.server.Scheduler != c.want || got.server.Persistence != time.Hour || (got.server.Flags != 0) != (c.want == "mh") {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// planText is what plan prints for an empty kernel.
func planText(t *testing.T, f family, list ...*service.Service) string {
	t.Helper()
	b := New(Options{Family: f.Family, MasqueradeBit: 14, RandomFully: true})
	sync := dataplane.NewSync(&dataplane.Fake{})
	program(t, b, sync, self(f), list...)
	return b.PlanText(sync.Plan())
}

var updateGolden = flag.Bool("update", false, "write the golden plans anew")

// TestPlanText: the plan of a mix of Services, as it is in testdata.
func TestPlanText(t *testing.T) {
	for _, f := range families {
		file := "testdata/plan." + strings.ToLower(f.Family.String()) + ".txt"
		got := planText(t, f, mix(f)...)
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
			t.Errorf("%s (-golden +plan):\n%s", file, diff)
		}
	}
}
