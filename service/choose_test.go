package service

import (
	"net/netip"
	"strings"
	"testing"
)

// testEndpoint reads "10.244.0.1 ready node=a zone=z1,z2 for=a": an address and the
// conditions and hints that hold.
func testEndpoint(t *testing.T, s string) Endpoint {
	t.Helper()
	fields := strings.Fields(s)
	e := Endpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(fields[0]), 8080)}
	var hints Hints
	for _, f := range fields[1:] {
		key, value, _ := strings.Cut(f, "=")
		switch key {
		case "ready":
			e.Ready, e.Serving = true, true
		case "serving":
			e.Serving = true
		case "terminating":
			e.Terminating = true
		case "node":
			e.Node = value
		case "zone":
			hints.Zones = strings.Split(value, ",")
		case "for":
			hints.Nodes = strings.Split(value, ",")
		default:
			t.Fatalf("unknown word %q", f)
		}
	}
	if !hints.Equal(nil) {
		e.Hints = &hints
	}
	return e
}

func testEndpoints(t *testing.T, lines ...string) []Endpoint {
	t.Helper()
	var out []Endpoint
	for _, l := range lines {
		out = append(out, testEndpoint(t, l))
	}
	return out
}

func lastBytes(list []Endpoint) string {
	var out []string
	for _, e := range list {
		s := e.Addr.Addr().String()
		out = append(out, s[strings.LastIndexAny(s, ".:")+1:])
	}
	return strings.Join(out, " ")
}

var chooseCases = []struct {
	name             string
	internal, extern Policy
	nodePort         uint16
	endpoints        []string
	cluster, local   string
	reachable        string
	any              bool
}{
	{name: "all ready ones", endpoints: []string{"10.0.0.1 ready", "10.0.0.2 ready", "10.0.0.3"},
		cluster: "1 2", reachable: "1 2", any: true},
	{name: "other family ignored", endpoints: []string{"10.0.0.1 ready", "fd00::2 ready"},
		cluster: "1", reachable: "1", any: true},
	{name: "D34 terminating ones when nothing is ready", endpoints: []string{"10.0.0.1 serving terminating", "10.0.0.2 terminating", "10.0.0.3 serving"},
		cluster: "1", reachable: "1", any: true},
	{name: "nothing", endpoints: []string{"10.0.0.1"}},
	{name: "internal Local", internal: Local, endpoints: []string{"10.0.0.1 ready node=a", "10.0.0.2 ready node=b"},
		local: "1", reachable: "1", any: true},
	{name: "internal Local, none here", internal: Local, endpoints: []string{"10.0.0.2 ready node=b"}, any: true},
	{name: "internal Local, only terminating elsewhere", internal: Local, endpoints: []string{"10.0.0.2 serving terminating node=b"}, any: true},
	{name: "internal Local, Cluster needed by node port", internal: Local, nodePort: 30000,
		endpoints: []string{"10.0.0.1 ready node=a", "10.0.0.2 ready node=b"}, cluster: "1 2", local: "1", reachable: "1 2", any: true},
	{name: "D34 external Local falls back to terminating apart from Cluster", extern: Local, nodePort: 30000,
		endpoints: []string{"10.0.0.1 serving terminating node=a", "10.0.0.2 ready node=b"}, cluster: "2", local: "1", reachable: "1 2", any: true},
	{name: "external Local without external address counts for nothing", extern: Local,
		endpoints: []string{"10.0.0.1 ready node=a", "10.0.0.2 ready node=b"}, cluster: "1 2", reachable: "1 2", any: true},
	{name: "endpoint without node is never local", internal: Local, endpoints: []string{"10.0.0.1 ready"}, any: true},
	{name: "D32 zone hints", endpoints: []string{"10.0.0.1 ready zone=z1", "10.0.0.2 ready zone=z2", "10.0.0.3 ready zone=z2,z1"},
		cluster: "1 3", reachable: "1 3", any: true},
	{name: "D32 one endpoint without hint switches hints off", endpoints: []string{"10.0.0.1 ready zone=z1", "10.0.0.2 ready"},
		cluster: "1 2", reachable: "1 2", any: true},
	{name: "D32 hints for another zone only", endpoints: []string{"10.0.0.1 ready zone=z2", "10.0.0.2 ready zone=z3"},
		cluster: "1 2", reachable: "1 2", any: true},
	{name: "D32 not-ready endpoints do not count for hints", endpoints: []string{"10.0.0.1 ready zone=z1", "10.0.0.2", "10.0.0.3 ready zone=z2"},
		cluster: "1", reachable: "1", any: true},
	{name: "D32 node hints before zone hints", endpoints: []string{"10.0.0.1 ready zone=z1 for=b", "10.0.0.2 ready zone=z2 for=a"},
		cluster: "2", reachable: "2", any: true},
	{name: "D32 missing node hint falls through to zones", endpoints: []string{"10.0.0.1 ready zone=z1", "10.0.0.2 ready zone=z2 for=a"},
		cluster: "1", reachable: "1", any: true},
	{name: "D32 terminating fallback ignores hints", endpoints: []string{"10.0.0.1 serving terminating zone=z2", "10.0.0.2 serving terminating zone=z1"},
		cluster: "1 2", reachable: "1 2", any: true},
	{name: "D32 policy Local beside hints", extern: Local, nodePort: 30000,
		endpoints: []string{"10.0.0.1 ready node=a zone=z2", "10.0.0.2 ready node=b zone=z1"}, cluster: "2", local: "1", reachable: "1 2", any: true},
}

// Which endpoints a Service port uses on a node, by policies, readiness and hints.
func TestChoose(t *testing.T) {
	node := Node{Name: "a", Zone: "z1"}
	for _, tt := range chooseCases {
		t.Run(tt.name, func(t *testing.T) {
			s := &Service{InternalPolicy: tt.internal, ExternalPolicy: tt.extern}
			p := Port{Port: 80, NodePort: tt.nodePort, Endpoints: testEndpoints(t, tt.endpoints...)}
			c := Choose(node, s, p, IPv4)
			if got := lastBytes(c.Cluster); got != tt.cluster {
				t.Errorf("Cluster = %q, want %q", got, tt.cluster)
			}
			if got := lastBytes(c.Local); got != tt.local {
				t.Errorf("Local = %q, want %q", got, tt.local)
			}
			if got := lastBytes(c.Reachable); got != tt.reachable {
				t.Errorf("Reachable = %q, want %q", got, tt.reachable)
			}
			if c.Any != tt.any {
				t.Errorf("Any = %v, want %v", c.Any, tt.any)
			}
		})
	}
}

func TestNoZoneRoutingWithoutZone(t *testing.T) {
	p := Port{Endpoints: testEndpoints(t, "10.0.0.1 ready zone=z1", "10.0.0.2 ready zone=z2")}
	c := Choose(Node{Name: "a"}, &Service{}, p, IPv4)
	if got := lastBytes(c.Cluster); got != "1 2" {
		t.Errorf("Cluster = %q, want both", got)
	}
}
