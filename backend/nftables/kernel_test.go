package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// live returns a Backend that writes to the namespace of the calling thread.
func live(t testing.TB, f service.Family) *Backend {
	t.Helper()
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Family: f, MasqueradeBit: 14, Conn: conn, Trouble: func(err error) { t.Errorf("later: %v", err) }})
	b.removeAfter = time.Hour // see settle
	t.Cleanup(func() {
		b.stop()
		conn.Close()
	})
	return b
}

// olderThan tells whether the running kernel comes before Linux major.minor.
func olderThan(t testing.TB, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if n, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &a, &b); n != 2 {
		t.Fatal(err)
	}
	return a < major || a == major && b < minor
}

// stop keeps the timer from writing after the test.
func (b *Backend) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	b.late = newRemovals()
}

// family has addresses of the same meaning in both families.
type family struct {
	family                        service.Family
	cluster, external, pod, outer string // fmt formats of a number
	podCIDR, ranges               string
}

var families = []family{
	{service.IPv4, "10.96.0.%d", "203.0.113.%d", "10.244.1.%d", "10.244.2.%d", "10.244.0.0/16", "192.0.2.0/24"},
	{service.IPv6, "fd00:96::%d", "2001:db8:113::%d", "fd00:244:1::%d", "fd00:244:2::%d", "fd00:244::/32", "2001:db8:2::/64"},
}

func at(format string, n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, n)) }

func (f family) node() service.Node {
	return service.Node{Name: "node1", Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix(f.podCIDR)}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}}
}

// endpoints are n ready ones, every second on this node.
func (f family) endpoints(n int, port uint16) (out []service.Endpoint) {
	for i := range n {
		format, node := f.pod, "node1"
		if i%2 == 1 {
			format, node = f.outer, "node2"
		}
		out = append(out, service.Endpoint{Addr: netip.AddrPortFrom(at(format, i+1), port), Ready: true, Serving: true, Node: node})
	}
	return out
}

// web is a Service of number n with a TCP port and that many endpoints.
func (f family) web(n, endpoints int) *service.Service {
	return &service.Service{
		Name:       service.Name{Namespace: "default", Name: fmt.Sprintf("web-%d", n)},
		Created:    time.Unix(int64(n), 0),
		ClusterIPs: []netip.Addr{at(f.cluster, n)},
		Ports:      []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, Endpoints: f.endpoints(endpoints, 8080)}},
	}
}

// mix has a Service of every kind.
func (f family) mix() []*service.Service {
	kinds := []func(*service.Service){
		func(s *service.Service) {},
		func(s *service.Service) { s.ExternalIPs = []netip.Addr{at(f.external, 1)} },
		func(s *service.Service) {
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 2)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.ranges), netip.PrefixFrom(at(f.external, 9), at(f.external, 9).BitLen())}
		},
		func(s *service.Service) { s.Ports[0].NodePort = 30080 },
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30081
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 3)}
		},
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30082
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
		},
		func(s *service.Service) { s.InternalPolicy = service.Local },
		func(s *service.Service) { s.Ports[0].Endpoints = nil; s.Ports[0].NodePort = 30083 },
		func(s *service.Service) {
			s.AffinityTimeout = 3 * time.Hour
			s.Ports[0].NodePort = 30084
			s.ExternalIPs = []netip.Addr{at(f.external, 4)}
		},
		func(s *service.Service) {
			s.AffinityTimeout = 10 * time.Second
			s.ExternalPolicy = service.Local
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 5)}
		},
		func(s *service.Service) { s.Ports[0].Protocol = service.UDP },
		func(s *service.Service) { s.Ports[0].Protocol = service.SCTP },
		func(s *service.Service) {
			s.Ports[0].NodePort = 30085
			s.Ports[0].Endpoints[0].Weight, s.Ports[0].Endpoints[1].Weight = 3, service.Weightless
		},
		func(s *service.Service) {
			s.Algorithm = service.RoundRobin
			s.Ports[0].NodePort = 30086
			s.Ports[0].Endpoints[0].Weight = 2
			s.ExternalPolicy = service.Local
		},
		func(s *service.Service) {
			s.Algorithm = service.RoundRobin
			s.AffinityTimeout = 10 * time.Second
			s.Ports[0].Endpoints[0].Warmth = 5
			s.ExternalIPs = []netip.Addr{at(f.external, 6)}
		},
		func(s *service.Service) {
			s.RejectNoLocal = true
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30087
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
		},
		func(s *service.Service) { // endpoints of different ports, one address among them with two
			s.AffinityTimeout = 10 * time.Second
			s.InternalPolicy, s.ExternalPolicy = service.Local, service.Local
			s.Ports[0].NodePort = 30088
			first, second := &s.Ports[0].Endpoints[0], &s.Ports[0].Endpoints[1]
			first.Addr = netip.AddrPortFrom(first.Addr.Addr(), 9090)
			second.Addr, second.Node = netip.AddrPortFrom(first.Addr.Addr(), 9091), first.Node
		},
	}
	var out []*service.Service
	for i, kind := range kinds {
		s := f.web(i+1, 5)
		kind(s)
		out = append(out, s)
	}
	return out
}

// program has the Sync want these Services.
func program(t testing.TB, b *Backend, sync *dataplane.Sync, node service.Node, list ...*service.Service) {
	t.Helper()
	sync.Set(dataplane.Owner{}, b.Base(node))
	for _, s := range list {
		objects, err := b.Render(node, s)
		if err != nil {
			t.Fatal(err)
		}
		sync.Set(dataplane.Owner{Name: s.Name.String(), Since: s.Created}, objects)
	}
}

func apply(t testing.TB, sync *dataplane.Sync) dataplane.Report {
	t.Helper()
	r, err := sync.Apply(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, rejected := range r.Rejected {
		t.Fatalf("%s rejected: %v", rejected.Owner, rejected.Err)
	}
	return r
}

func settle(t testing.TB, b *Backend) {
	t.Helper()
	if err := b.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// nothingToDo checks that a new Sync over the same Services finds all in place.
func nothingToDo(t testing.TB, b *Backend, node service.Node, list ...*service.Service) {
	t.Helper()
	fresh := dataplane.NewSync(b)
	program(t, b, fresh, node, list...)
	plan, err := fresh.Diff(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if !plan.Empty() {
		t.Errorf("what was written is not what is read:\n%s", plan)
	}
}

func ruleset(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v\n%s", err, out)
	}
	return string(out)
}

func load(t testing.TB, text string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft -f: %v\n%s", err, out)
	}
}

// TestRoundTrip: what is rendered can be written, reads back as it was, and is
// listed by nft in a form that nft takes again, with the clients that are remembered.
func TestRoundTrip(t *testing.T) {
	for _, f := range families {
		t.Run(f.family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.family)
			sync := dataplane.NewSync(b)
			list := f.mix()
			program(t, b, sync, f.node(), list...)
			apply(t, sync)
			nothingToDo(t, b, f.node(), list...)
			remember(t, b, "default/web-9:http", at(f.external, 1), f.endpoints(1, 8080)[0].Addr)
			listing := ruleset(t)
			load(t, "flush ruleset\n"+listing)
			if again := ruleset(t); again != listing {
				t.Errorf("the listing does not load as it was; first\n%s\nthen\n%s", listing, again)
			}
		})
	}
}
