package lab

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Host is one network stack of the lab: a node, a pod or the outside client.
type Host struct {
	Name  string
	Addrs []netip.Addr

	lab   *Lab
	ns    *namespace
	links *netlink.Handle
}

// Node is a host with a bridge for its pods.
type Node struct {
	Host
	Bridge []netip.Addr // of the pod bridge, one a family

	pods []netip.Prefix
}

// quiet keeps the kernel from sending what no test asked for, and makes addresses
// usable at once.
var quiet = []sysctl{
	{path: "net/ipv6/conf/all/disable_ipv6", value: "0"},
	{path: "net/ipv6/conf/default/accept_dad", value: "0"},
	{path: "net/ipv6/conf/default/dad_transmits", value: "0"},
	{path: "net/ipv6/conf/default/accept_ra", value: "0"},
	{path: "net/ipv6/conf/default/router_solicitations", value: "0"},
	{path: "net/ipv6/conf/default/accept_redirects", value: "0"},
	{path: "net/ipv4/conf/default/accept_redirects", value: "0"},
	{path: "net/ipv4/conf/all/accept_redirects", value: "0"},
	{path: "net/ipv4/conf/all/send_redirects", value: "0"},
	{path: "net/ipv4/conf/default/send_redirects", value: "0"},
	{path: "net/ipv4/conf/all/rp_filter", value: "0"},
	{path: "net/ipv4/conf/default/rp_filter", value: "0"},
}

// router makes a node forward, show bridged packets to its rules, and refuse
// connections as often as it is asked to: a kernel otherwise limits its ICMP errors
// and a refusal becomes a time-out.
var router = []sysctl{
	{path: "net/ipv4/ip_forward", value: "1"},
	{path: "net/ipv6/conf/all/forwarding", value: "1"},
	{path: "net/ipv4/icmp_ratelimit", value: "0"},
	{path: "net/ipv6/icmp/ratelimit", value: "0"},
	{path: "net/ipv4/icmp_msgs_per_sec", value: "1000000", optional: true},
	{path: "net/ipv4/icmp_msgs_burst", value: "1000000", optional: true},
	{path: "net/bridge/bridge-nf-call-iptables", value: "1", optional: true},
	{path: "net/bridge/bridge-nf-call-ip6tables", value: "1", optional: true},
}

// newHost makes a namespace with its loopback up.
func (l *Lab) newHost(name string, addrs []netip.Addr, settings ...sysctl) (Host, error) {
	ns, err := newNamespace(l.home)
	if err != nil {
		return Host{}, err
	}
	h := Host{Name: name, Addrs: addrs, lab: l, ns: ns}
	err = ns.setSysctls(append(append([]sysctl(nil), quiet...), settings...))
	if err == nil {
		h.links, err = netlink.NewHandleAt(netns.NsHandle(ns.file.Fd()), unix.NETLINK_ROUTE)
	}
	if err == nil {
		err = h.up("lo")
	}
	if err != nil {
		h.close()
		return Host{}, fmt.Errorf("lab: host %s: %w", name, err)
	}
	return h, nil
}

func (h *Host) close() {
	if h.links != nil {
		h.links.Close()
	}
	if h.ns != nil {
		h.ns.close()
	}
}

// Unplug takes a node off the switch, as a cut cable does.
func (n *Node) Unplug() error {
	link, err := n.links.LinkByName("eth0")
	if err == nil {
		err = n.links.LinkSetDown(link)
	}
	if err != nil {
		return fmt.Errorf("lab: node %s: unplug: %w", n.Name, err)
	}
	return nil
}

// setMTU sets the largest packet of an interface, in bytes.
func (h *Host) setMTU(name string, mtu int) error {
	link, err := h.links.LinkByName(name)
	if err == nil {
		err = h.links.LinkSetMTU(link, mtu)
	}
	if err != nil {
		return fmt.Errorf("MTU %d of %s: %w", mtu, name, err)
	}
	return nil
}

// up sets an interface up and gives it addresses.
func (h *Host) up(name string, addrs ...netip.Prefix) error {
	link, err := h.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if err := h.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	for _, addr := range addrs {
		err := h.links.AddrAdd(link, &netlink.Addr{IPNet: ipNet(addr), Flags: unix.IFA_F_NODAD})
		if err != nil {
			return fmt.Errorf("address %v on %s: %w", addr, name, err)
		}
	}
	return nil
}

// bridge makes a bridge that forwards at once. A bridge without an address of its
// own takes the lowest of its ports', so that a new pod could change it under
// neighbours that remember the old one; being told its address, it keeps it.
func (h *Host) bridge(name string, addrs ...netip.Prefix) error {
	snooping := false
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0} // locally administered
	rand.Read(mac[1:])
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac}, MulticastSnooping: &snooping}
	if err := h.links.LinkAdd(link); err != nil {
		return fmt.Errorf("bridge %s: %w", name, err)
	}
	return h.up(name, addrs...)
}

// plug joins another host to a bridge of this one: port here, eth0 there. A
// hairpin port may send a frame back to where it came from.
func (h *Host) plug(bridge, port string, hairpin bool, other *Host, addrs ...netip.Prefix) error {
	master, err := h.links.LinkByName(bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", bridge, err)
	}
	link := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: port, MasterIndex: master.Attrs().Index},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(int(other.ns.file.Fd())),
	}
	if err := h.links.LinkAdd(link); err != nil {
		return fmt.Errorf("veth %s to %s: %w", port, other.Name, err)
	}
	if err := h.up(port); err != nil {
		return err
	}
	if hairpin {
		made, err := h.links.LinkByName(port)
		if err == nil {
			err = h.links.LinkSetHairpin(made, true)
		}
		if err != nil {
			return fmt.Errorf("hairpin mode of %s: %w", port, err)
		}
	}
	return other.up("eth0", addrs...)
}

// route sends a network to a gateway; a zero network is the default route.
func (h *Host) route(to netip.Prefix, via netip.Addr) error {
	r := &netlink.Route{Gw: net.IP(via.AsSlice()), Dst: everything(via)}
	if to.IsValid() {
		r.Dst = ipNet(to)
	}
	if err := h.links.RouteAdd(r); err != nil {
		return fmt.Errorf("lab: host %s: route to %v via %v: %w", h.Name, to, via, err)
	}
	return nil
}

// everything is the network of all addresses of the family of like.
func everything(like netip.Addr) *net.IPNet {
	if like.Is4() {
		return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}
	}
	return &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
}

// Do runs fn on a thread inside the host's network namespace: sockets that fn
// creates and files it opens under /proc/sys/net are the host's. fn must not leave
// that work to other goroutines.
func (h *Host) Do(fn func() error) error { return h.ns.do(fn) }

// Sysctl reads a setting of the host; path as under /proc/sys.
func (h *Host) Sysctl(path string) (string, error) {
	var value []byte
	err := h.ns.do(func() (err error) {
		value, err = os.ReadFile("/proc/sys/" + path)
		return err
	})
	return string(value), err
}

// Addr gives the host's first address of the family of like; the zero Addr if none.
func (h *Host) Addr(like netip.Addr) netip.Addr { return ofFamily(h.Addrs, like) }

// packets counts what the host sent through eth0.
func (h *Host) packets() uint64 {
	link, err := h.links.LinkByName("eth0")
	if err != nil || link.Attrs().Statistics == nil {
		return 0
	}
	return link.Attrs().Statistics.TxPackets
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: net.IP(p.Addr().AsSlice()), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
