package linux

import (
	"context"
	"fmt"
	"iter"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/podnet"
)

// Network is the dataplane.Kernel of what one family of a pod network has
// besides rules. Its own are, whoever made them:
//   - vxlan devices that are called as podnet.DeviceOf calls them, with their
//     addresses, permanent neighbours and forwarding entries;
//   - routes of the main table through a gateway to a part of the cluster's
//     range, by one of these devices or the external interface.
type Network struct {
	family    podnet.Family
	cluster   netip.Prefix
	device    string // the external interface
	handle    *netlink.Handle
	namespace netns.NsHandle               // in which it was opened
	changed   chan dataplane.Notice        // see Changes
	devices   atomic.Pointer[map[int]bool] // indexes of our devices, as last observed
}

// Open returns the Network of the cluster range in the current network
// namespace.
func Open(f podnet.Family, cluster netip.Prefix, device string) (*Network, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("podnet: open rtnetlink: %w", err)
	}
	ns, err := netns.Get()
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("podnet: open network namespace: %w", err)
	}
	return &Network{family: f, cluster: cluster, device: device, handle: h, namespace: ns, changed: make(chan dataplane.Notice, 1)}, nil
}

// Close ends the connection to the kernel. What was written stays.
func (n *Network) Close() {
	n.handle.Close()
	n.namespace.Close() // an error means that it is closed
}

func (n *Network) unixFamily() int {
	if n.family == podnet.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Observe yields what is there, links first.
func (n *Network) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		objects, err := n.observe()
		if err != nil {
			yield(dataplane.Object{}, fmt.Errorf("podnet: observe %s: %w", n.family, err))
			return
		}
		for _, container := range []string{podnet.Links, podnet.Addresses, podnet.Neighbours, podnet.Forwards, podnet.Routes} {
			if !yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed}}, nil) {
				return
			}
			for _, o := range objects[container] {
				if !yield(o, nil) {
					return
				}
			}
		}
	}
}

// observe reads what is ours, by container: vxlan devices with what hangs on them, and
// routes. It remembers which devices there are, for Changes.
func (n *Network) observe() (map[string][]dataplane.Object, error) {
	links, err := n.handle.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	out := map[string][]dataplane.Object{}
	add := func(container string, o dataplane.Object) { out[container] = append(out[container], o) }
	ours := map[int]bool{}
	defer n.devices.Store(&ours)
	for _, l := range links {
		v, ok := l.(*netlink.Vxlan)
		if !ok || !n.ownDevice(v.Name) {
			continue
		}
		ours[v.Index] = true
		add(podnet.Links, linkOf(v, names).Object())
		if err := n.observeDevice(v, add); err != nil {
			return nil, fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	routes, err := n.handle.RouteListFiltered(n.unixFamily(), &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if o, ok := n.ownRoute(r, names, ours); ok {
			add(podnet.Routes, o.Object())
		}
	}
	return out, nil
}

func (n *Network) isDevice(index int) bool {
	devices := n.devices.Load()
	return devices != nil && (*devices)[index]
}

// ownDevice tells by the name: the one of another VNI is left from another
// configuration.
func (n *Network) ownDevice(name string) bool {
	prefix := strings.TrimSuffix(podnet.DeviceOf(n.family, 0), "0")
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}

func linkOf(v *netlink.Vxlan, names map[int]string) podnet.Link {
	local, _ := netip.AddrFromSlice(v.SrcAddr)
	l := podnet.Link{Name: v.Name, VNI: v.VxlanId, Device: names[v.VtepDevIndex], Local: local.Unmap(), Port: v.Port, MTU: v.MTU, Learning: v.Learning, GBP: v.GBP}
	if l.Device == "" {
		l.Device = "-"
	}
	copy(l.MAC[:], v.HardwareAddr)
	return l
}

// observeDevice reads addresses, neighbours and forwarding entries of a vxlan device.
// Only permanent ones were written by somebody; the kernel learns others itself.
func (n *Network) observeDevice(v *netlink.Vxlan, add func(string, dataplane.Object)) error {
	addrs, err := n.handle.AddrList(v, n.unixFamily())
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.IsLinkLocalUnicast() {
			add(podnet.Addresses, podnet.Address{Device: v.Name, Addr: addr.Unmap()}.Object())
		}
	}
	neighbours, err := n.handle.NeighList(v.Index, n.unixFamily())
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	for _, e := range neighbours {
		addr, ok := netip.AddrFromSlice(e.IP)
		if ok && e.State == unix.NUD_PERMANENT && len(e.HardwareAddr) == 6 && !addr.IsMulticast() {
			add(podnet.Neighbours, podnet.Neighbour{Device: v.Name, Addr: addr.Unmap(), MAC: podnet.MAC(e.HardwareAddr)}.Object())
		}
	}
	forwards, err := n.handle.NeighList(v.Index, unix.AF_BRIDGE)
	if err != nil {
		return fmt.Errorf("list forwarding entries: %w", err)
	}
	for _, e := range forwards {
		dst, ok := netip.AddrFromSlice(e.IP)
		if ok && e.State == unix.NUD_PERMANENT && len(e.HardwareAddr) == 6 {
			add(podnet.Forwards, podnet.Forward{Device: v.Name, MAC: podnet.MAC(e.HardwareAddr), Dst: dst.Unmap()}.Object())
		}
	}
	return nil
}

// ownRoute tells whether a route is one of the pod network: a next hop within it, by a
// device of ours.
func (n *Network) ownRoute(r netlink.Route, names map[int]string, devices map[int]bool) (podnet.Route, bool) {
	if r.Dst == nil || r.Gw == nil || !(devices[r.LinkIndex] || names[r.LinkIndex] == n.device) {
		return podnet.Route{}, false
	}
	dst, ok := prefixOf(r.Dst)
	if !ok || !n.cluster.Overlaps(dst) || dst.Bits() < n.cluster.Bits() {
		return podnet.Route{}, false
	}
	via, _ := netip.AddrFromSlice(r.Gw)
	return podnet.Route{Dst: dst, Via: via.Unmap(), Device: names[r.LinkIndex], OnLink: r.Flags&int(netlink.FLAG_ONLINK) != 0}, true
}

func prefixOf(p *net.IPNet) (netip.Prefix, bool) {
	addr, ok := netip.AddrFromSlice(p.IP)
	bits, _ := p.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits), ok
}
