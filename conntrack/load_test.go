package conntrack

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// web has two ready endpoints, one that drains and one that is not ready, and lets
// clients from outside reach only those on this node, the first one.
func web() *service.Service {
	s := dns()
	s.Name = service.Name{Namespace: "default", Name: "web"}
	s.Ports = []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, NodePort: 30080, Endpoints: []service.Endpoint{
		{Addr: addrPort("10.244.1.1:8080"), Ready: true, Serving: true, Node: "node-1"},
		{Addr: addrPort("10.244.1.2:8080"), Ready: true, Serving: true, Node: "node-2"},
		{Addr: addrPort("10.244.1.3:8080"), Serving: true, Terminating: true, Node: "node-2"},
		{Addr: addrPort("10.244.1.4:8080"), Node: "node-2"},
	}}}
	return s
}

// countOf counts flows, so many of each line.
func countOf(t *testing.T, lines map[string]int) []Load {
	t.Helper()
	s := (&service.Snapshot{}).With(service.Node{Name: "node-1"}, []*service.Service{web(), dns()}, nil)
	c := NewCount(s, service.IPv4, local)
	for line, n := range lines {
		for range n {
			c.Add(flow(t, line))
		}
	}
	c.AddNew(flow(t, "tcp 10.96.0.10:80 10.244.1.2:8080"), 5)
	return c.Loads()
}

// TestLoads: flows are counted where they belong, and held against the shares that
// the Service asks for.
func TestLoads(t *testing.T) {
	loads := countOf(t, map[string]int{
		"tcp 10.96.0.10:80 10.244.1.1:8080 established":    20,
		"tcp 10.96.0.10:80 10.244.1.3:8080 established":    2,
		"tcp 10.96.0.10:80 10.244.1.2:8080 closing":        7,
		"tcp 10.96.0.10:80 10.244.1.9:8080 established":    1,
		"tcp 10.96.0.10:80 10.244.1.2:8080":                3, // not answered yet
		"tcp 10.96.0.10:80 10.96.0.10:80":                  4, // not translated
		"tcp 192.0.2.11:30080 10.244.1.1:8080 established": 6, // all of them expected there
		"udp 10.96.0.10:53 10.244.1.1:53":                  1,
		"udp 10.96.0.99:53 10.244.1.1:53":                  9, // not ours
	})
	if len(loads) != 2 || loads[0].Name.String() != "default/web:http" || loads[1].Name.Service.Name != "dns" {
		t.Fatalf("loads: %+v", loads)
	}
	l := loads[0]
	var got strings.Builder
	fmt.Fprintf(&got, "live %d unreplied %d stale %d new %d misplaced %.0f\n", l.Live, l.Unreplied, l.Stale, l.New, l.Misplaced())
	for _, e := range l.Endpoints {
		fmt.Fprintf(&got, "%v %v: live %d expected %.0f unreplied %d stale %d new %d\n", e.Addr, e.State, e.Live, e.Expected, e.Unreplied, e.Stale, e.New)
	}
	want := `live 32 unreplied 3 stale 5 new 5 misplaced 10
10.244.1.1:8080 ready: live 26 expected 19 unreplied 0 stale 0 new 0
10.244.1.2:8080 ready: live 3 expected 13 unreplied 3 stale 0 new 5
10.244.1.3:8080 terminating: live 2 expected 0 unreplied 0 stale 0 new 0
10.244.1.9:8080 gone: live 1 expected 0 unreplied 0 stale 1 new 0
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	if again := loads[0].Skew(); math.Abs(again-10.0/32) > 1e-9 {
		t.Errorf("skew %v", again)
	}
}

// TestPlanRebalance: what may be done about the skew that was seen when an endpoint
// was added to one that had 20 connections, for some fractions.
func TestPlanRebalance(t *testing.T) {
	seen := Load{Live: 20, Endpoints: []EndpointLoad{
		{Addr: addrPort("10.244.0.5:8080"), State: Ready, Live: 20, Expected: 10},
		{Addr: addrPort("10.244.0.6:8080"), State: Ready, Expected: 10},
	}}
	for _, c := range []struct {
		fraction      float64
		most          int
		resets, after float64
	}{
		{1, 20, 20, 0},
		{0.5, 10, 10, 0.25}, // half of the skew
		{0.25, 5, 5, 0.375},
		{0.04, 0, 0, 0.5},
	} {
		p := PlanRebalance(seen, c.fraction)
		if p.MostResets() != c.most || math.Abs(p.Resets()-c.resets) > 1e-9 || math.Abs(p.SkewAfter()-c.after) > 1e-9 {
			t.Errorf("fraction %v: at most %d resets, %v expected, skew %v after", c.fraction, p.MostResets(), p.Resets(), p.SkewAfter())
		}
	}
	balanced := Load{Live: 21, Endpoints: []EndpointLoad{{State: Ready, Live: 11, Expected: 10.5}, {State: Ready, Live: 10, Expected: 10.5}}}
	draining := Load{Live: 4, Endpoints: []EndpointLoad{{State: Terminating, Live: 4}, {State: Ready, Expected: 4}}}
	alone := Load{Live: 4, Endpoints: []EndpointLoad{{State: Ready, Live: 4, Expected: 4}}}
	for _, l := range []Load{balanced, draining, alone, {}} {
		if p := PlanRebalance(l, 1); len(p.Sheds) > 0 {
			t.Errorf("%+v: %+v", l, p.Sheds)
		}
	}
}

// TestSkewOfFlows: a table of flows has the skew that its shares say.
func TestSkewOfFlows(t *testing.T) {
	loads := countOf(t, map[string]int{
		"tcp 10.96.0.10:80 10.244.1.1:8080 established": 20,
	})
	if got := loads[0].Skew(); got != 0.5 {
		t.Errorf("20 on one of two endpoints: skew %v", got)
	}
	if i := slices.IndexFunc(loads[0].Endpoints, func(e EndpointLoad) bool { return e.Live == 0 }); i < 0 {
		t.Error("the endpoint without connections is not there")
	}
	if closing(conntrack.Flow{Proto: conntrack.UDP, State: 5}) {
		t.Error("UDP closes")
	}
}

// What is expected follows the weights.
func TestLoadsByWeight(t *testing.T) {
	weighted := web()
	weighted.Ports[0].Endpoints[0].Weight = 3
	s := (&service.Snapshot{}).With(service.Node{Name: "node-1"}, []*service.Service{weighted}, nil)
	c := NewCount(s, service.IPv4, local)
	for range 20 {
		c.Add(flow(t, "tcp 10.96.0.10:80 10.244.1.1:8080 established"))
	}
	l := c.Loads()[0]
	if first, second := l.Endpoints[0].Expected, l.Endpoints[1].Expected; first != 15 || second != 5 || l.Misplaced() != 5 {
		t.Errorf("expected %v and %v, %v misplaced", first, second, l.Misplaced())
	}
}
