package localhost

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/service"
)

func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// node asks for loopback in both families.
func node(list ...string) service.Node {
	if list == nil {
		list = []string{"127.0.0.0/8", "::1/128"}
	}
	return service.Node{Name: "node1", NodePorts: service.NodePortAddresses{Prefixes: prefixes(list...)}}
}

// nodePort is a Service of both families with one port, TCP if not changed.
func nodePort(name string, port uint16, change func(*service.Service), endpoints ...string) *service.Service {
	s := &service.Service{
		Name:       service.Name{Namespace: "default", Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00:96::1")},
		Ports:      []service.Port{{Protocol: service.TCP, Port: 80, NodePort: port}},
	}
	for _, e := range endpoints {
		addr, at, _ := strings.Cut(e, "@")
		s.Ports[0].Endpoints = append(s.Ports[0].Endpoints, service.Endpoint{Addr: netip.MustParseAddrPort(addr), Ready: true, Serving: true, Node: at})
	}
	if change != nil {
		change(s)
	}
	return s
}

// Of each network of loopback one address answers, 127.0.0.1 where it is in it.
func TestAddresses(t *testing.T) {
	for networks, want := range map[string]string{
		"127.0.0.0/8 ::1/128":                 "[127.0.0.1 ::1]",
		"127.0.0.0/8 127.0.0.1/32 10.0.0.0/8": "[127.0.0.1]",
		"127.0.0.2/32 127.1.0.0/16":           "[127.0.0.2 127.1.0.0]",
		"127.0.0.9/8":                         "[127.0.0.1]",
		"0.0.0.0/0 ::/0":                      "[]",
		"::1/64":                              "[::1]",
	} {
		if got := fmt.Sprint(Addresses(service.NodePortAddresses{Prefixes: prefixes(strings.Fields(networks)...)})); got != want {
			t.Errorf("%s: %s, want %s", networks, got, want)
		}
	}
}

// describe lists who is answered by whom.
func describe(p Port, t Target) string {
	text := fmt.Sprintf("%s > %v", p, t.Endpoints)
	if t.Affinity > 0 {
		text += " for " + t.Affinity.String()
	}
	return text
}

// Who answers is what service decided for the node itself.
func TestPorts(t *testing.T) {
	const v4, v6, away = "10.244.1.1:8080@node1", "[fd00:244::1]:8080@node1", "10.244.2.1:8080@node2"
	for name, c := range map[string]struct {
		svc  *service.Service
		want string
	}{
		"both families": {nodePort("a", 30080, nil, v4, v6, away),
			"tcp 127.0.0.1:30080 > [10.244.1.1:8080 10.244.2.1:8080]; tcp [::1]:30080 > [[fd00:244::1]:8080]"},
		"no endpoints":  {nodePort("a", 30080, nil), ""},
		"one not ready": {nodePort("a", 30080, func(s *service.Service) { s.Ports[0].Endpoints[0].Ready = false }, v4, away), "tcp 127.0.0.1:30080 > [10.244.2.1:8080]"},
		"no NodePort":   {nodePort("a", 0, nil, v4), ""},
		"UDP":           {nodePort("a", 30053, func(s *service.Service) { s.Ports[0].Protocol = service.UDP }, v4), "udp 127.0.0.1:30053 > [10.244.1.1:8080]"},
		"SCTP":          {nodePort("a", 30080, func(s *service.Service) { s.Ports[0].Protocol = service.SCTP }, v4), ""},
		"weights": {nodePort("a", 30080, func(s *service.Service) { s.Ports[0].Endpoints[0].Weight = 2 }, v4, away),
			"tcp 127.0.0.1:30080 > [10.244.1.1:8080 10.244.2.1:8080 10.244.1.1:8080]"},
		"affinity": {nodePort("a", 30080, func(s *service.Service) { s.AffinityTimeout = time.Minute }, v4), "tcp 127.0.0.1:30080 > [10.244.1.1:8080] for 1m0s"},
		"this node is not held to policy Local": {nodePort("a", 30080, func(s *service.Service) { s.ExternalPolicy = service.Local }, away),
			"tcp 127.0.0.1:30080 > [10.244.2.1:8080]"},
		"one family": {nodePort("a", 30080, func(s *service.Service) { s.ClusterIPs = s.ClusterIPs[:1] }, v4, v6), "tcp 127.0.0.1:30080 > [10.244.1.1:8080]"},
	} {
		var got []string
		for p, target := range Ports(node(), c.svc, Addresses(node().NodePorts)) {
			got = append(got, describe(p, target))
		}
		if all := strings.Join(got, "; "); all != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, all, c.want)
		}
	}
}

// changes applies a Snapshot and tells what is different.
func changes(t *table, s *service.Snapshot) string {
	var out []string
	for _, p := range t.update(s) {
		if target, ok := t.target(p); ok {
			out = append(out, fmt.Sprintf("%s %s", p, target.Name.Service.Name))
		} else {
			out = append(out, fmt.Sprintf("%s nobody", p))
		}
	}
	return strings.Join(out, "; ")
}

// The table tells what a Snapshot changed; of two claims the older Service's wins.
func TestTable(t *testing.T) {
	const endpoint = "10.244.1.1:8080"
	table := newTable()
	expect := func(what string, s *service.Snapshot, want string) *service.Snapshot {
		t.Helper()
		if got := changes(table, s); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		return s
	}
	a, b := nodePort("a", 30001, nil, endpoint), nodePort("b", 30002, nil, endpoint)
	s := expect("first", (&service.Snapshot{}).With(node(), []*service.Service{a, b}, nil), "tcp 127.0.0.1:30001 a; tcp 127.0.0.1:30002 b")
	expect("the same", s, "")
	more := nodePort("b", 30002, nil, endpoint, "10.244.1.2:8080")
	s = expect("an endpoint more", s.With(s.Node, []*service.Service{more}, nil), "tcp 127.0.0.1:30002 b")
	s = expect("a change that is none", s.With(s.Node, []*service.Service{nodePort("b", 30002, func(s *service.Service) { s.HealthCheckNodePort = 9 }, endpoint, "10.244.1.2:8080")}, nil), "")
	s = expect("another port", s.With(s.Node, []*service.Service{nodePort("b", 30003, nil, endpoint)}, nil), "tcp 127.0.0.1:30002 nobody; tcp 127.0.0.1:30003 b")

	older := nodePort("old", 30001, nil, endpoint)
	a2 := nodePort("a", 30001, func(s *service.Service) { s.Created = time.Unix(9, 0) }, endpoint)
	s = expect("an older one with the same port", s.With(s.Node, []*service.Service{a2, older}, nil), "tcp 127.0.0.1:30001 old")
	s = expect("which goes", s.With(s.Node, nil, []service.Name{older.Name}), "tcp 127.0.0.1:30001 a")

	s = expect("loopback is not asked for", s.With(node("192.0.2.0/24"), nil, nil), "tcp 127.0.0.1:30001 nobody; tcp 127.0.0.1:30003 nobody")
	s = expect("and a change then", s.With(s.Node, []*service.Service{a}, nil), "")
	expect("asked for again", s.With(node(), nil, nil), "tcp 127.0.0.1:30001 a; tcp 127.0.0.1:30003 b")
	if len(table.claims) != 2 || len(slices.Collect(maps.Keys(table.ports))) != 2 {
		t.Errorf("the table keeps %v, %v", table.claims, table.ports)
	}
}
