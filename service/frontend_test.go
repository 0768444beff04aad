package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func frontendOf(t *testing.T, node Node, s *Service, k Kind) Frontend {
	t.Helper()
	for _, pf := range Decide(node, s, IPv4) {
		for _, f := range pf.Frontends {
			if f.Kind == k {
				return f
			}
		}
	}
	t.Fatalf("no frontend of kind %s", k)
	return Frontend{}
}

// Endpoints of routeCases: on both nodes, on the other, not ready.
const (
	both   = "10.0.0.1 ready node=a;10.0.0.2 ready node=b"
	remote = "10.0.0.2 ready node=b"
	none   = "10.0.0.1"
)

var routeCases = []struct {
	kind               Kind
	internal, external Policy
	endpoints          string
	noDetector         bool
	masqueradeAll      bool
	pod, host, outside string
}{
	{kind: ClusterIP, endpoints: both, pod: "forward 1 2", host: "forward 1 2 snat", outside: "forward 1 2 snat"},
	{kind: ClusterIP, endpoints: both, masqueradeAll: true, pod: "forward 1 2 snat", host: "forward 1 2 snat", outside: "forward 1 2 snat"},
	{kind: ClusterIP, endpoints: both, noDetector: true, pod: "forward 1 2", host: "forward 1 2", outside: "forward 1 2"},
	{kind: ClusterIP, endpoints: none, pod: "reject", host: "reject", outside: "reject"},
	{kind: ClusterIP, internal: Local, endpoints: both, pod: "forward 1", host: "forward 1 snat", outside: "forward 1 snat"},
	{kind: ClusterIP, internal: Local, endpoints: remote, pod: "drop", host: "drop", outside: "drop"},
	{kind: ClusterIP, internal: Local, endpoints: none, pod: "reject", host: "reject", outside: "reject"},
	{kind: ClusterIP, external: Local, endpoints: remote, pod: "forward 2", host: "forward 2 snat", outside: "forward 2 snat"},

	{kind: NodePort, endpoints: both, pod: "forward 1 2 snat", host: "forward 1 2 snat", outside: "forward 1 2 snat"},
	{kind: NodePort, endpoints: none, pod: "reject", host: "reject", outside: "reject"},
	{kind: NodePort, internal: Local, endpoints: remote, pod: "forward 2 snat", host: "forward 2 snat", outside: "forward 2 snat"},
	{kind: NodePort, external: Local, endpoints: both, pod: "forward 1 2", host: "forward 1 2 snat", outside: "forward 1"},
	{kind: NodePort, external: Local, endpoints: remote, pod: "forward 2", host: "forward 2 snat", outside: "drop"},
	{kind: NodePort, external: Local, endpoints: remote, noDetector: true, pod: "drop", host: "forward 2 snat", outside: "drop"},
	{kind: NodePort, external: Local, endpoints: none, pod: "reject", host: "reject", outside: "reject"},
	{kind: ExternalIP, external: Local, endpoints: both, pod: "forward 1 2", host: "forward 1 2 snat", outside: "forward 1"},
	{kind: LoadBalancerIP, external: Local, endpoints: both, pod: "forward 1 2", host: "forward 1 2 snat", outside: "forward 1"},
	{kind: LoadBalancerIP, endpoints: both, pod: "forward 1 2 snat", host: "forward 1 2 snat", outside: "forward 1 2 snat"},
}

// The verdict, endpoints and masquerade of every class, as kube-proxy 1.37
// gives them. "snat" stands for masquerade.
func TestRoutes(t *testing.T) {
	for _, tt := range routeCases {
		name := fmt.Sprintf("%s internal %s external %s %s", tt.kind, tt.internal, tt.external, strings.ReplaceAll(tt.endpoints, " ready", ""))
		t.Run(name, func(t *testing.T) {
			node := Node{Name: "a", MasqueradeAll: tt.masqueradeAll}
			if !tt.noDetector {
				node.Detector.CIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}
			}
			port := Port{Protocol: TCP, Port: 80, Endpoints: testEndpoints(t, strings.Split(tt.endpoints, ";")...)}
			s := &Service{
				Name:           Name{"default", "web"},
				ClusterIPs:     []netip.Addr{netip.MustParseAddr("10.96.0.10")},
				InternalPolicy: tt.internal, ExternalPolicy: tt.external,
			}
			switch tt.kind {
			case NodePort:
				port.NodePort = 30080
			case ExternalIP:
				s.ExternalIPs = []netip.Addr{netip.MustParseAddr("192.0.2.1")}
			case LoadBalancerIP:
				s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("198.51.100.7")}
			}
			s.Ports = []Port{port}
			f := frontendOf(t, node, s, tt.kind)
			for class, want := range map[Class]string{FromPod: tt.pod, FromHost: tt.host, FromOutside: tt.outside} {
				r := f.Route(class)
				got := strings.TrimSpace(r.Verdict.String() + " " + lastBytes(r.Endpoints))
				if r.Masquerade {
					got += " snat"
				}
				if got != want {
					t.Errorf("%s: %q, want %q", class, got, want)
				}
				if r.Reason == "" {
					t.Errorf("%s: no reason given", class)
				}
			}
		})
	}
}

// Ranges hold for load balancer addresses alone; those of the other family limit nobody.
func TestSourceRanges(t *testing.T) {
	ranges := func(list ...string) (out []netip.Prefix) {
		for _, s := range list {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	node := Node{Name: "a", IPs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}}
	tests := []struct {
		name   string
		ranges []netip.Prefix
		admits map[string]bool
	}{
		{"none: everybody", nil, map[string]bool{"203.0.113.1": true}},
		{"one", ranges("203.0.113.0/24"), map[string]bool{"203.0.113.1": true, "198.51.100.200": false, "198.51.100.7": false}},
		{"several", ranges("203.0.113.0/24", "10.0.0.0/8"), map[string]bool{"10.1.2.3": true, "11.0.0.1": false}},
		{"node inside: each VIP may be the source", ranges("192.0.2.0/24"), map[string]bool{"198.51.100.7": true, "198.51.100.8": true, "203.0.113.1": false}},
		{"D29 other family only: unrestricted", ranges("2001:db8::/32"), map[string]bool{"203.0.113.1": true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &Service{
				ClusterIPs:      []netip.Addr{netip.MustParseAddr("10.96.0.10")},
				LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("198.51.100.8")},
				ExternalIPs:     []netip.Addr{netip.MustParseAddr("192.0.2.1")},
				SourceRanges:    tt.ranges,
				Ports:           []Port{{Port: 80, Protocol: TCP, NodePort: 30000, Endpoints: testEndpoints(t, "10.0.0.1 ready")}},
			}
			f := frontendOf(t, node, s, LoadBalancerIP)
			for addr, want := range tt.admits {
				if got := admits(f, addr); got != want {
					t.Errorf("%s is let in: %v, want %v", addr, got, want)
				}
			}
			for _, k := range []Kind{ClusterIP, ExternalIP, NodePort} {
				if !admits(frontendOf(t, node, s, k), "8.8.8.8") {
					t.Errorf("%s is limited by source ranges", k)
				}
			}
		})
	}
}

// An address that is both an external IP and that of the load balancer is limited.
func TestSourceRangesOfAnAddressThatIsBoth(t *testing.T) {
	both := netip.MustParseAddr("198.51.100.7")
	s := &Service{
		ClusterIPs:      []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		ExternalIPs:     []netip.Addr{both, netip.MustParseAddr("192.0.2.1")},
		LoadBalancerIPs: []netip.Addr{both},
		SourceRanges:    []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
		Ports:           []Port{{Port: 80, Protocol: TCP, Endpoints: testEndpoints(t, "10.0.0.1 ready")}},
	}
	answered := func() (n int, free bool) {
		for _, pf := range Decide(Node{}, s, IPv4) {
			for _, f := range pf.Frontends {
				if f.Addr == both {
					n, free = n+1, free || admits(f, "8.8.8.8")
				}
			}
		}
		return n, free
	}
	if n, free := answered(); n != 1 || free {
		t.Errorf("%d frontends, for everybody: %v", n, free)
	}
	if f := frontendOf(t, Node{}, s, ExternalIP); f.Addr == both || !admits(f, "8.8.8.8") {
		t.Errorf("the other external IP: %+v", f)
	}
	s.SourceRanges = nil
	if n, free := answered(); n != 2 || !free {
		t.Errorf("without source ranges: %d frontends, for everybody: %v", n, free)
	}
}

func admits(f Frontend, src string) bool {
	contains := func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(src)) }
	return len(f.SourceRanges) == 0 || slices.ContainsFunc(f.SourceRanges, contains)
}

func TestNodePortAddresses(t *testing.T) {
	local := []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1"),
		netip.MustParseAddr("::1"), netip.MustParseAddr("2001:db8::1")}
	tests := []struct {
		name      string
		prefixes  []string
		localhost bool
		all4      bool
		selected4 string
		all6      bool
		loopback  bool
	}{
		{name: "none", localhost: true, all4: true, all6: true, loopback: true},
		{name: "one family leaves the other unlimited", prefixes: []string{"192.0.2.0/24"}, localhost: true, selected4: "192.0.2.10", all6: true},
		{name: "loopback", prefixes: []string{"127.0.0.0/8"}, localhost: true, selected4: "127.0.0.1", all6: true, loopback: true},
		{name: "loopback switched off", prefixes: []string{"127.0.0.0/8"}, all6: true},
		{name: "everything", prefixes: []string{"0.0.0.0/0", "::1/128"}, localhost: true, all4: true, selected4: "10.0.0.1 127.0.0.1 192.0.2.10", loopback: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := NodePortAddresses{Local: local, Localhost: tt.localhost}
			for _, p := range tt.prefixes {
				a.Prefixes = append(a.Prefixes, netip.MustParsePrefix(p))
			}
			var got []string
			for _, s := range a.Selected(IPv4) {
				got = append(got, s.String())
			}
			if a.All(IPv4) != tt.all4 || strings.Join(got, " ") != tt.selected4 || a.All(IPv6) != tt.all6 || a.AllowsLocalhost() != tt.loopback {
				t.Errorf("all4 %v selected %v all6 %v loopback %v", a.All(IPv4), got, a.All(IPv6), a.AllowsLocalhost())
			}
			if len(a.Selected(IPv6)) > 0 {
				t.Errorf("IPv6 selected: %v", a.Selected(IPv6))
			}
		})
	}
}

// With RejectNoLocal what would be dropped is refused, but where source ranges hide
// the address.
func TestRejectNoLocal(t *testing.T) {
	svc := &Service{
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		LoadBalancerIPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		InternalPolicy: Local, ExternalPolicy: Local,
		Ports: []Port{{Protocol: TCP, Port: 80, NodePort: 30080, Endpoints: []Endpoint{{Addr: netip.MustParseAddrPort("10.244.2.1:80"), Ready: true, Node: "b"}}}},
	}
	node := Node{Name: "a"}
	for _, reject := range []bool{false, true} {
		svc.RejectNoLocal = reject
		want := map[bool]Verdict{false: Drop, true: Reject}[reject]
		for kind, want := range map[Kind]Verdict{ClusterIP: want, ExternalIP: want, NodePort: want, LoadBalancerIP: Drop} {
			f := frontendOf(t, node, svc, kind)
			if got := f.Route(FromOutside); got.Verdict != want || (want == Reject) != strings.Contains(got.Reason, "refused") {
				t.Errorf("reject %v: %s: %s, %s, want %s", reject, kind, got.Verdict, got.Reason, want)
			}
			if got := f.Route(FromHost).Verdict; kind != ClusterIP && got != Forward {
				t.Errorf("reject %v: %s: %s for the node itself", reject, kind, got)
			}
		}
	}
	svc.SourceRanges = nil
	if got := frontendOf(t, node, svc, LoadBalancerIP).Route(FromOutside).Verdict; got != Reject {
		t.Errorf("without source ranges: %s", got)
	}
}
