package linux

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/podnet"
)

// inNamespace moves the test to a network namespace of its own with the
// external interface eth0, 172.22.7.89/20. The thread ends with it.
func inNamespace(t testing.TB) {
	t.Helper()
	netnstest.Enter(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: "far"}))
	for _, name := range []string{"eth0", "far", "lo"} {
		l, err := netlink.LinkByName(name)
		must(err)
		must(netlink.LinkSetUp(l))
		if name == "eth0" {
			a, _ := netlink.ParseAddr("172.22.7.89/20")
			must(netlink.AddrAdd(l, a))
			a, _ = netlink.ParseAddr("fd00:22::89/64")
			a.Flags = 2 // IFA_F_NODAD
			must(netlink.AddrAdd(l, a))
		}
	}
}

type cluster struct {
	config podnet.Config
	names  podnet.Annotations
	self   podnet.Self
	own    podnet.Node
	nodes  []podnet.Node
}

func newCluster(t testing.TB, conf string, peers int) *cluster {
	t.Helper()
	c, err := podnet.ParseConfig([]byte(conf))
	if err != nil {
		t.Fatal(err)
	}
	names, err := podnet.NewAnnotations(podnet.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	w := &cluster{config: c, names: names}
	w.own = podnet.Node{Name: "node-0", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/24"), netip.MustParsePrefix("fd00:244::/64")}}
	w.self = podnet.Self{Name: "node-0", Device: "eth0", MTU: 1500,
		V4: podnet.Half{Addr: netip.MustParseAddr("172.22.7.89"), Public: netip.MustParseAddr("172.22.7.89"), MAC: podnet.MAC{2, 0, 0, 0, 0, 1}, OnLink: []netip.Prefix{netip.MustParsePrefix("172.22.0.0/20")}},
		V6: podnet.Half{Addr: netip.MustParseAddr("fd00:22::89"), Public: netip.MustParseAddr("fd00:22::89"), MAC: podnet.MAC{2, 0, 0, 0, 6, 1}, OnLink: []netip.Prefix{netip.MustParsePrefix("fd00:22::/64")}},
	}
	for i := range peers {
		w.nodes = append(w.nodes, w.peer(i+1, 0))
	}
	return w
}

// peer is node i, whose devices have another address in each version.
func (w *cluster) peer(i, version int) podnet.Node {
	v4 := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(244 + i/256), byte(i), 0}), 24)
	six := netip.MustParseAddr("fd00:244::").As16()
	six[6], six[7] = byte(i/256), byte(i)
	public6 := netip.MustParseAddr("fd00:22::").As16()
	public6[14], public6[15] = 1+byte(i/256), byte(i)
	self := podnet.Self{
		V4: podnet.Half{Addr: netip.AddrFrom4([4]byte{172, 22, 8 + byte(i/256), byte(i)}), Public: netip.AddrFrom4([4]byte{172, 22, 8 + byte(i/256), byte(i)}), MAC: podnet.MAC{2, 1, 0, byte(version), byte(i / 256), byte(i)}},
		V6: podnet.Half{Addr: netip.AddrFrom16(public6), Public: netip.AddrFrom16(public6), MAC: podnet.MAC{2, 6, 0, byte(version), byte(i / 256), byte(i)}},
	}
	n := podnet.Node{Name: "node-" + strings.Repeat("x", i%3) + string(rune('a'+i%26)) + netip.AddrFrom4([4]byte{0, 0, byte(i / 256), byte(i)}).String(), PodCIDRs: []netip.Prefix{v4, netip.PrefixFrom(netip.AddrFrom16(six), 64)}}
	n.Annotations = w.names.Announce(w.config, self, podnet.Node{})
	return n
}

// set asks a Sync for what the topology of the family needs, for the peers too.
func (w *cluster) set(t testing.TB, s *dataplane.Sync, f podnet.Family) podnet.Topology {
	t.Helper()
	top, problems, err := podnet.Given{Config: w.config, Annotations: w.names, Self: w.self, Own: w.own, Nodes: w.nodes}.Resolve(f)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	s.Set(dataplane.Owner{}, podnet.Base(top))
	for _, p := range top.Peers {
		s.Set(podnet.OwnerOf(p), podnet.Render(top, p))
	}
	return top
}

func (w *cluster) open(t testing.TB, f podnet.Family) *Network {
	t.Helper()
	n, err := Open(f, w.config.NetworkOf(f), "eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

const (
	vxlanConf  = `{"Network":"10.244.0.0/14","IPv6Network":"fd00:244::/32","EnableIPv6":true,"Backend":{"Type":"vxlan"}}`
	hostGWConf = `{"Network":"10.244.0.0/14","IPv6Network":"fd00:244::/32","EnableIPv6":true,"Backend":{"Type":"host-gw"}}`
)

func sync(t testing.TB, s *dataplane.Sync) dataplane.Report {
	t.Helper()
	r, err := s.Reconcile(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rejected) > 0 {
		t.Fatalf("refused: %v", r.Rejected[0].Err)
	}
	return r
}

// What was written is what is observed, a restart writes nothing, and one
// peer's change touches its objects only.
func TestWrittenIsObserved(t *testing.T) {
	for _, conf := range []string{vxlanConf, hostGWConf} {
		for _, f := range []podnet.Family{podnet.IPv4, podnet.IPv6} {
			t.Run(string(newCluster(t, conf, 0).config.Backend.Type)+"/"+f.String(), func(t *testing.T) {
				inNamespace(t)
				w := newCluster(t, conf, 500)
				n := w.open(t, f)
				s := dataplane.NewSync(n)
				w.set(t, s, f)
				first := sync(t, s)
				if first.Created < 500 {
					t.Fatalf("%d objects were created for 500 peers", first.Created)
				}
				again := dataplane.NewSync(n)
				w.set(t, again, f)
				if r := sync(t, again); r.Writes != 0 {
					t.Errorf("a restart writes: %+v", r)
				}
				w.nodes[7] = w.peer(8, 1)
				w.nodes[7].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.247.255.0/24"), netip.MustParsePrefix("fd00:244:ffff::/64")}
				w.set(t, s, f)
				r, err := s.Apply(t.Context())
				if err != nil || r.Created+r.Replaced+r.Deleted > 6 || r.Created == 0 {
					t.Errorf("one peer's change: %+v, %v", r, err)
				}
			})
		}
	}
}

// Switching the backend leaves nothing of the other, and no route twice.
func TestSwitchBackend(t *testing.T) {
	inNamespace(t)
	for i, conf := range []string{vxlanConf, hostGWConf, vxlanConf} {
		w := newCluster(t, conf, 3)
		n := w.open(t, podnet.IPv4)
		s := dataplane.NewSync(n)
		w.set(t, s, podnet.IPv4)
		sync(t, s)
		sync(t, s)
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, r := range routes {
			if r.Gw != nil {
				seen[r.Dst.String()]++
			}
		}
		if len(seen) != 3 {
			t.Errorf("step %d: routes %v", i, seen)
		}
		for dst, n := range seen {
			if n != 1 {
				t.Errorf("step %d: %s has %d routes", i, dst, n)
			}
		}
		_, err = netlink.LinkByName("flannel.1")
		if there := err == nil; there != (w.config.Backend.Type == podnet.VXLAN) {
			t.Errorf("step %d: flannel.1 there: %v", i, there)
		}
	}
}

// damages are what others may break, but for a stranger's route.
func damages(n *Network, stranger *netlink.Route) map[string]func() error {
	return map[string]func() error{
		"device deleted": func() error { return n.removeLink("flannel.1") },
		"routes flushed": func() error {
			routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
			for _, r := range routes {
				if err == nil && r.Gw != nil && r.Dst.String() != stranger.Dst.String() {
					err = netlink.RouteDel(&r)
				}
			}
			return err
		},
		"forwarding entry removed": func() error {
			return n.remove(podnet.Forward{Device: "flannel.1", MAC: podnet.MAC{2, 1, 0, 0, 0, 2}, Dst: netip.MustParseAddr("172.22.8.2")}.Object())
		},
		"neighbour removed": func() error {
			return n.remove(podnet.Neighbour{Device: "flannel.1", Addr: netip.MustParseAddr("10.244.2.0"), MAC: podnet.MAC{2, 1, 0, 0, 0, 2}}.Object())
		},
		"address removed": func() error {
			return n.remove(podnet.Address{Device: "flannel.1", Addr: netip.MustParseAddr("10.244.0.0")}.Object())
		},
		"address of the device changed": func() error {
			l, err := netlink.LinkByName("flannel.1")
			if err == nil {
				err = netlink.LinkSetHardwareAddr(l, net.HardwareAddr{2, 9, 9, 9, 9, 9})
			}
			return err
		},
		"device of another VNI left": func() error {
			return n.addLink(podnet.Link{Name: "flannel.7", VNI: 7, Device: "eth0", Local: netip.MustParseAddr("172.22.7.89"), Port: 8472, MTU: 1450, MAC: podnet.MAC{2, 7}})
		},
	}
}

// What others break is seen and mended; what is left of a node that went while
// nobody looked goes; a stranger's route stays.
func TestRepair(t *testing.T) {
	inNamespace(t)
	w := newCluster(t, vxlanConf, 3)
	n := w.open(t, podnet.IPv4)
	s := dataplane.NewSync(n)
	w.set(t, s, podnet.IPv4)
	sync(t, s)
	changes := n.Changes(t.Context())
	eth0, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := &netlink.Route{LinkIndex: eth0.Attrs().Index, Dst: hostNet(netip.MustParseAddr("192.0.2.1")), Gw: netip.MustParseAddr("172.22.0.1").AsSlice()}
	if err := netlink.RouteAdd(stranger); err != nil {
		t.Fatal(err)
	}
	for name, do := range damages(n, stranger) {
		if err := do(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if p, err := s.Diff(t.Context()); err != nil || p.Empty() {
			t.Errorf("%s: not seen: %v", name, err)
		}
		for healed := false; !healed; {
			<-changes
			sync(t, s)
			p, err := s.Diff(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			healed = p.Empty()
		}
	}
	w.nodes = w.nodes[1:] // one went while nobody looked
	s = dataplane.NewSync(n)
	w.set(t, s, podnet.IPv4)
	if r := sync(t, s); r.Deleted != 3 || r.Created+r.Replaced != 0 {
		t.Errorf("a node that went: %+v", r)
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, stranger, netlink.RT_FILTER_DST)
	if err != nil || len(routes) != 1 {
		t.Errorf("the stranger's route: %v, %v", routes, err)
	}
}
