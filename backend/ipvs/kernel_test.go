package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// family has addresses of the same meaning in both families.
type family struct {
	family                              service.Family
	cluster, external, pod, outer, node string // fmt formats of a number
	podCIDR, ranges                     string
}

var families = []family{
	{service.IPv4, "10.96.0.%d", "203.0.113.%d", "10.244.1.%d", "10.244.2.%d", "192.0.2.%d", "10.244.0.0/16", "198.51.100.0/24"},
	{service.IPv6, "fd00:96::%d", "2001:db8:113::%d", "fd00:244:1::%d", "fd00:244:2::%d", "2001:db8::%d", "fd00:244::/32", "2001:db8:2::/64"},
}

func at(format string, n int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf(format, n)) }

// self is a node with two addresses beside loopback.
func (f family) self() service.Node {
	return service.Node{
		Name:      "node1",
		IPs:       []netip.Addr{at(f.node, 11)},
		Detector:  service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix(f.podCIDR)}},
		NodePorts: service.NodePortAddresses{Local: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), at(f.node, 11), at(f.node, 12)}},
	}
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
		func(s *service.Service) { s.ExternalIPs = []netip.Addr{at(f.external, 1), at(f.node, 12)} },
		func(s *service.Service) {
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 2)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.ranges), netip.PrefixFrom(at(f.node, 11), at(f.node, 11).BitLen())}
		},
		func(s *service.Service) { s.Ports[0].NodePort = 30080 },
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30081
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 3)}
		},
		func(s *service.Service) { // both policies, and nobody here
			s.ExternalPolicy, s.InternalPolicy = service.Local, service.Local
			s.Ports[0].NodePort = 30082
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
			s.HealthCheckNodePort = 31000
		},
		func(s *service.Service) { s.InternalPolicy = service.Local },
		func(s *service.Service) { s.Ports[0].Endpoints = nil; s.Ports[0].NodePort = 30083 },
		func(s *service.Service) {
			s.AffinityTimeout = 3 * time.Hour
			s.Ports[0].NodePort = 30084
			s.ExternalIPs = []netip.Addr{at(f.external, 4)}
		},
		func(s *service.Service) { s.Ports[0].Protocol, s.Ports[0].NodePort = service.UDP, 30085 },
		func(s *service.Service) { s.Ports[0].Protocol, s.Ports[0].NodePort = service.SCTP, 30086 },
		func(s *service.Service) {
			s.Ports[0].Protocol, s.Ports[0].NodePort = service.SCTP, 30087
			s.ExternalPolicy = service.Local
			s.LoadBalancerIPs = []netip.Addr{at(f.external, 5)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.ranges)}
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

// inNamespace moves the test to a network namespace of its own with the addresses of
// self and a route to everywhere. The thread ends with the test.
func inNamespace(t testing.TB) {
	t.Helper()
	netnstest.Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	for _, f := range families {
		a := at(f.node, 11)
		own := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
		everywhere := &net.IPNet{IP: make(net.IP, len(a.AsSlice())), Mask: net.CIDRMask(0, a.BitLen())}
		if err := errors.Join(err, netlink.AddrAdd(lo, own)); err != nil {
			t.Fatalf("address %v: %v", a, err)
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: everywhere}); err != nil {
			t.Fatalf("route to %v: %v", everywhere, err)
		}
	}
}

// live returns a Backend that writes to the namespace of the calling thread.
func live(t testing.TB, f service.Family) *Backend {
	t.Helper()
	variant := iptables.Family(4)
	if f == service.IPv6 {
		variant = 6
	}
	tool := iptables.NewTool(variant, iptables.Legacy)
	tool.Env = []string{"XTABLES_LOCKFILE=" + t.TempDir() + "/lock"}
	k, err := OpenKernel(tool)
	if errors.Is(err, ipvs.ErrMissing) {
		t.Skipf("%v; make e2e-ipvs has one that does", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Family: f, MasqueradeBit: 14, RandomFully: true, Kernel: k, Trouble: func(err error) { t.Errorf("later: %v", err) }})
	t.Cleanup(func() {
		b.stop()
		k.Close()
	})
	return b
}

// stop keeps the timer from writing after the test.
func (b *Backend) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains = newDrains()
	b.schedule()
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
	for _, c := range sync.Conflicts() {
		t.Errorf("conflict: %+v", c)
	}
	return r
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

// reals lists the real servers of a virtual one as "address weight".
func reals(t testing.TB, b *Backend, protocol ipvs.Protocol, addr netip.Addr, port uint16) []string {
	t.Helper()
	list, err := b.options.Kernel.Servers.Reals(ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(addr, port)})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range list {
		out = append(out, fmt.Sprintf("%v %d", r.Addr, r.Weight))
	}
	slices.Sort(out)
	return out
}

// TestRoundTrip: what is rendered can be written and reads back as it was, also by a
// process that begins anew; and what is not asked for any more leaves nothing.
func TestRoundTrip(t *testing.T) {
	for _, f := range families {
		t.Run(f.family.String(), func(t *testing.T) {
			inNamespace(t)
			b := live(t, f.family)
			if err := b.Probe(context.Background()); err != nil {
				t.Fatal(err)
			}
			sync := dataplane.NewSync(b)
			list := f.mix()
			program(t, b, sync, f.self(), list...)
			apply(t, sync)
			nothingToDo(t, b, f.self(), list...)
			nothingToDo(t, live(t, f.family), f.self(), list...)
			for _, s := range list {
				sync.Remove(s.Name.String())
			}
			apply(t, sync)
			nothingToDo(t, b, f.self())
			servers, err := b.options.Kernel.Servers.Servers()
			if err != nil || len(servers) > 0 {
				t.Errorf("left: %v, %v", servers, err)
			}
		})
	}
}
