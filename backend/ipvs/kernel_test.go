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

	"portolan/backend/backendtest"
	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/iptables"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// family has the addresses of an IP family.
type family = backendtest.Family

// What the tests of all backends share.
var (
	families    = backendtest.Families
	at          = backendtest.At
	program     = backendtest.Program
	apply       = backendtest.Apply
	nothingToDo = backendtest.NothingToDo
)

// self is a node with two addresses beside loopback.
func self(f family) service.Node {
	return service.Node{
		Name:      "node1",
		IPs:       []netip.Addr{at(f.Node, 11)},
		Detector:  service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix(f.PodCIDR)}},
		NodePorts: service.NodePortAddresses{Local: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback(), at(f.Node, 11), at(f.Node, 12)}},
	}
}

// mix has a Service of every kind.
func mix(f family) []*service.Service {
	return f.Webs(
		func(s *service.Service) {},
		func(s *service.Service) { s.ExternalIPs = []netip.Addr{at(f.External, 1), at(f.Node, 12)} },
		func(s *service.Service) {
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 2)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.Clients), netip.PrefixFrom(at(f.Node, 11), at(f.Node, 11).BitLen())}
		},
		func(s *service.Service) { s.Ports[0].NodePort = 30080 },
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30081
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 3)}
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
			s.ExternalIPs = []netip.Addr{at(f.External, 4)}
		},
		func(s *service.Service) { s.Ports[0].Protocol, s.Ports[0].NodePort = service.UDP, 30085 },
		func(s *service.Service) { s.Ports[0].Protocol, s.Ports[0].NodePort = service.SCTP, 30086 },
		func(s *service.Service) {
			s.Ports[0].Protocol, s.Ports[0].NodePort = service.SCTP, 30087
			s.ExternalPolicy = service.Local
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 5)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.Clients)}
		},
	)
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
		a := at(f.Node, 11)
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
		t.Run(f.Family.String(), func(t *testing.T) {
			inNamespace(t)
			b := live(t, f.Family)
			if err := b.Probe(context.Background()); err != nil {
				t.Fatal(err)
			}
			sync := dataplane.NewSync(b)
			list := mix(f)
			program(t, b, sync, self(f), list...)
			apply(t, sync)
			nothingToDo(t, b, self(f), list...)
			nothingToDo(t, live(t, f.Family), self(f), list...)
			for _, s := range list {
				sync.Remove(s.Name.String())
			}
			apply(t, sync)
			nothingToDo(t, b, self(f))
			servers, err := b.options.Kernel.Servers.Servers()
			if err != nil || len(servers) > 0 {
				t.Errorf("left: %v, %v", servers, err)
			}
		})
	}
}
