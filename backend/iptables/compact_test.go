package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// From one layout to the other and back: what is there afterwards is what a start on
// an empty host writes, and lines whose containers are in both are not written.
func TestChangeOfLayout(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		saved := map[Layout]string{}
		for _, l := range []Layout{Standard, Compact, Standard, Compact} {
			o := backendFor(tool).options
			o.Layout = l
			b := New(o)
			node, services := everyShape(o.Family)
			s := dataplane.NewSync(b)
			fill(t, s, b, node, services)
			r, err := s.Apply(t.Context())
			must(t, err)
			if r.Writes != 1 || len(r.Rejected) > 0 {
				t.Errorf("layout %v: %+v", l, r)
			}
			text := save(t, tool)
			if strings.Contains(text, endpointChain[4:]) == (l == Compact) && !strings.Contains(text, "--name KUBE-SEP-") {
				t.Errorf("layout %v:\n%s", l, text)
			}
			if before, again := saved[l]; again && sortedLines(before) != sortedLines(text) {
				t.Errorf("layout %v for the second time:\n%s\nwant\n%s", l, text, before)
			}
			saved[l] = text
		}
	})
}

// sortedLines makes texts comparable in which chains are declared in another order.
func sortedLines(text string) string {
	return strings.Join(slices.Sorted(strings.Lines(text)), "")
}

// While the layout changes, what is dropped and refused stays so: the old lines of
// filter go when nat has turned.
func TestChangeOfLayoutProtects(t *testing.T) {
	node, services := everyShape(service.IPv4)
	for _, turn := range [][2]Layout{{Standard, Compact}, {Compact, Standard}} {
		old, b := New(Options{Layout: turn[0], MasqueradeBit: 14}), New(Options{Layout: turn[1], MasqueradeBit: 14})
		want := dataplane.NewSync(NewDump(b, Text(allObjects(t, old, node, services))))
		fill(t, want, b, node, services)
		plan, err := want.Diff(t.Context())
		if err != nil || plan.Empty() {
			t.Fatal(plan, err)
		}
		text := PlanText(plan)
		first, rest, _ := strings.Cut(text, "COMMIT\n")
		nat, last, _ := strings.Cut(rest, "COMMIT\n")
		if !strings.HasPrefix(first, "*filter\n") || !strings.HasPrefix(nat, "*nat\n") || !strings.HasPrefix(last, "*filter\n") {
			t.Fatalf("%v: not in three steps:\n%s", turn, text)
		}
		for _, line := range []string{`default/ranged:http traffic not accepted`, `default/none:http has no endpoints`} {
			// A line of the old layout is in a chain that the first step leaves alone, or
			// that it writes with the line.
			for _, o := range allObjects(t, old, node, services) {
				if !strings.Contains(o.Body, line) || tableOf(o.Key.Container) != "filter" {
					continue
				}
				chain := chainOf(o.Key.Container)
				if strings.Contains(first, ":"+chain+" ") && !strings.Contains(first, "-A "+chain+" "+o.Body+"\n") {
					t.Errorf("%v: the first step takes away: %s %s", turn, chain, o.Body)
				}
			}
		}
	}
}

func allObjects(t *testing.T, b *Backend, node service.Node, services []*service.Service) []dataplane.Object {
	t.Helper()
	objects := b.Base(node)
	for _, svc := range services {
		more, err := b.Render(node, svc)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
	}
	return objects
}

// Every endpoint has its share, by few rules, however many there are and whatever
// they weigh.
func TestChoiceIsFairAndShort(t *testing.T) {
	for _, n := range []int{1, 2, 31, 32, 33, 64, 65, 1000, 1024, 1025, 5000, 40_000} {
		for _, weighted := range []bool{false, true} {
			if weighted && n > 100 {
				continue
			}
			svc := benchService(1, 0)
			for i := range n {
				e := service.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 128 + byte(i>>16), byte(i >> 8), byte(i)}), 80), Ready: true, Serving: true}
				if weighted {
					e.Weight = service.Weight(1 + i%3)
				}
				svc.Ports[0].Endpoints = append(svc.Ports[0].Endpoints, e)
			}
			t.Run(fmt.Sprint(n, " weighted ", weighted), func(t *testing.T) { checkChoice(t, svc) })
		}
	}
}

// renderedChains are the rules of each chain that a Service asks for.
func renderedChains(t *testing.T, b *Backend, svc *service.Service) map[string][]string {
	t.Helper()
	objects, err := b.Render(benchNode(), svc)
	if err != nil {
		t.Fatal(err)
	}
	chains := map[string][]string{}
	for _, o := range objects {
		chains[o.Key.Container] = append(chains[o.Key.Container], o.Body)
		if len(chainOf(o.Key.Container)) > 28 {
			t.Fatalf("name too long: %s", o.Key.Container)
		}
	}
	return chains
}

func checkChoice(t *testing.T, svc *service.Service) {
	b := New(Options{Family: service.IPv4, Layout: Compact, MasqueradeBit: 14})
	chains := renderedChains(t, b, svc)
	endpoints := svc.Ports[0].Endpoints
	ratios, sum := service.Ratios(endpoints), 0
	for _, r := range ratios {
		sum += r
	}
	share, longest := map[string]float64{}, 0
	var walk func(container string, left float64, passed int)
	walk = func(container string, left float64, passed int) {
		for _, body := range chains[container] {
			passed++
			if strings.Contains(body, "KUBE-MARK-MASQ") {
				continue
			}
			p := left
			if _, odds, is := strings.Cut(body, "--probability "); is {
				word, _, _ := strings.Cut(odds, " ")
				f, err := strconv.ParseFloat(word, 64)
				if err != nil {
					t.Fatal(err)
				}
				p *= f
			}
			left -= p
			if _, to, is := strings.Cut(body, "--to-destination "); is {
				share[to] += p
				longest = max(longest, passed)
				continue
			}
			below := "nat/" + iptables.TargetOf(" "+body)
			if dependence(below) >= dependence(container) || dependence(below) < 0 {
				t.Errorf("%s leads to %s, which is written after it", container, below)
			}
			walk(below, p, passed)
		}
		if left > 1e-6 {
			t.Errorf("%s: %g of all is not led anywhere", container, left)
		}
	}
	walk(clusterChain+hash("team-001/service-00001:http", "tcp", ""), 1, 0)
	for i, e := range endpoints {
		if want, got := float64(ratios[i])/float64(sum), share[e.Addr.String()]; math.Abs(got-want) > 1e-5*want+1e-8 {
			t.Fatalf("%v has %g of all, want %g", e.Addr, got, want)
		}
	}
	if most := 3*fanOut + 2; len(endpoints) <= fanOut*maxLeaves && longest > most {
		t.Errorf("a connection passes up to %d rules, want at most %d", longest, most)
	}
}

// A change of an endpoint writes the chain of its Service port and nothing else; a new
// Service its own chain and its leaf.
func TestCompactWritesWhatChanged(t *testing.T) {
	b := New(Options{Family: service.IPv4, Layout: Compact, MasqueradeBit: 14})
	kernel := &paper{}
	s := dataplane.NewSync(kernel)
	var services []*service.Service
	remote := func(i, endpoints int) *service.Service {
		svc := benchService(i, endpoints)
		for j := range svc.Ports[0].Endpoints {
			svc.Ports[0].Endpoints[j].Node = "other"
		}
		return svc
	}
	for i := range 3000 {
		services = append(services, remote(i, 10))
	}
	benchFill(t, s, b, services[:2999])
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := remote(7, 9)
	benchSet(t, s, b, benchNode(), changed)
	var chains []string
	for _, c := range s.Plan().Changes {
		chains = append(chains, c.Container)
	}
	if want := []string{clusterChain + hash("team-007/service-00007:http", "tcp", "")}; !slices.Equal(chains, want) {
		t.Errorf("one endpoint writes %q, want %q", chains, want)
	}
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	benchSet(t, s, b, benchNode(), services[2999])
	chains = nil
	for _, c := range s.Plan().Changes {
		chains = append(chains, c.Container)
	}
	if want := []string{addressLeaf + "183", clusterChain + hash("team-099/service-02999:http", "tcp", "")}; !slices.Equal(chains, want) {
		t.Errorf("one Service writes %q, want %q", chains, want)
	}
}
