package linux

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/podnet"
)

// Choice says which interface is the external one. The first that is given and
// fits counts; without any it is the interface that holds an InternalIP of the
// Node, else the one of the default route.
type Choice struct {
	Names    []string         // of interfaces, or addresses that one has
	Patterns []*regexp.Regexp // of an address, else of a name
	CanReach netip.Addr       // the interface through which it is reached
	// PublicIPs are announced to peers instead of the interface's addresses.
	PublicIPs []netip.Addr
}

// candidate is an interface with its usable addresses.
type candidate struct {
	link  netlink.Link
	addrs []netip.Addr
}

// Discover finds the external interface of the current network namespace and
// what a pod network needs to know of it. MACs are left to the caller.
func Discover(choice Choice, names podnet.Annotations, own podnet.Node, families []podnet.Family) (podnet.Self, error) {
	all, err := candidates()
	if err != nil {
		return podnet.Self{}, fmt.Errorf("podnet: find the external interface: %w", err)
	}
	c, err := choice.pick(all, names, own, families)
	if err != nil {
		return podnet.Self{}, err
	}
	self := podnet.Self{Name: own.Name, Device: c.link.Attrs().Name, MTU: c.link.Attrs().MTU}
	for _, f := range families {
		half, err := c.half(f, choice, names, own)
		if err != nil {
			return podnet.Self{}, err
		}
		if f == podnet.IPv4 {
			self.V4 = half
		} else {
			self.V6 = half
		}
	}
	return self, nil
}

// candidates are the interfaces that are up, without loopback and vxlan, with
// the addresses that are neither link-local nor deprecated.
func candidates() ([]candidate, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	var out []candidate
	for _, l := range links {
		a := l.Attrs()
		if a.RawFlags&unix.IFF_UP == 0 || a.RawFlags&unix.IFF_LOOPBACK != 0 || l.Type() == "vxlan" {
			continue
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", a.Name, err)
		}
		c := candidate{link: l}
		for _, e := range addrs {
			addr, ok := netip.AddrFromSlice(e.IP)
			if ok && !addr.IsLinkLocalUnicast() && e.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_TEMPORARY) == 0 {
				c.addrs = append(c.addrs, addr.Unmap())
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// pick chooses as flannel does: by the names, then the patterns, that flags give; by the
// route to an address that a flag gives; else the interface with the address that the
// Node had before, or that kubelet told of, or that the default route leads through.
func (o Choice) pick(all []candidate, names podnet.Annotations, own podnet.Node, families []podnet.Family) (candidate, error) {
	holding := func(addr netip.Addr) (candidate, bool) {
		i := slices.IndexFunc(all, func(c candidate) bool { return slices.Contains(c.addrs, addr) })
		if i < 0 {
			return candidate{}, false
		}
		return all[i], true
	}
	for _, name := range o.Names {
		addr, _ := netip.ParseAddr(name)
		i := slices.IndexFunc(all, func(c candidate) bool { return c.link.Attrs().Name == name || slices.Contains(c.addrs, addr) })
		if i >= 0 {
			return all[i], nil
		}
	}
	for _, p := range o.Patterns {
		for _, c := range all {
			if slices.ContainsFunc(c.addrs, func(a netip.Addr) bool { return p.MatchString(a.String()) }) || p.MatchString(c.link.Attrs().Name) {
				return c, nil
			}
		}
	}
	if len(o.Names)+len(o.Patterns) > 0 {
		return candidate{}, fmt.Errorf("podnet: no interface that is up has a name or address of those that --iface and --iface-regex say")
	}
	if o.CanReach.IsValid() {
		return through(all, o.CanReach)
	}
	for _, f := range families {
		if c, ok := holding(names.NodePublicIP(own, f)); ok {
			return c, nil
		}
	}
	for _, addr := range own.Addresses {
		if c, ok := holding(addr); ok {
			return c, nil
		}
	}
	target := netip.MustParseAddr("1.1.1.1")
	if families[0] == podnet.IPv6 {
		target = netip.MustParseAddr("2606:4700:4700::1111")
	}
	c, err := through(all, target)
	if err != nil {
		return c, fmt.Errorf("podnet: no interface has an InternalIP of node %s, and there is no default route: choose one with --iface", own.Name)
	}
	return c, nil
}

// through finds the interface of the route to an address.
func through(all []candidate, addr netip.Addr) (candidate, error) {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 {
		return candidate{}, fmt.Errorf("podnet: no interface reaches %s: %w", addr, err)
	}
	i := slices.IndexFunc(all, func(c candidate) bool { return c.link.Attrs().Index == routes[0].LinkIndex })
	if i < 0 {
		return candidate{}, fmt.Errorf("podnet: the way to %s leads through no interface that can be used", addr)
	}
	return all[i], nil
}

// half is what the interface has of a family: the InternalIP of the Node if it
// is there, else its first address.
func (c candidate) half(f podnet.Family, choice Choice, names podnet.Annotations, own podnet.Node) (podnet.Half, error) {
	is := func(a netip.Addr) bool { return a.Is4() == (f == podnet.IPv4) }
	var h podnet.Half
	for _, a := range c.addrs {
		if !is(a) {
			continue
		}
		if !h.Addr.IsValid() || slices.Contains(own.Addresses, a) && !slices.Contains(own.Addresses, h.Addr) {
			h.Addr = a
		}
	}
	if chosen := names.NodePublicIP(own, f); chosen.IsValid() && slices.Contains(c.addrs, chosen) {
		h.Addr = chosen
	}
	if !h.Addr.IsValid() {
		return h, fmt.Errorf("podnet: interface %s has no %s address, and net-conf.json enables %s", c.link.Attrs().Name, f, f)
	}
	h.Public = h.Addr
	if i := slices.IndexFunc(choice.PublicIPs, is); i >= 0 {
		h.Public = choice.PublicIPs[i]
	}
	family := unix.AF_INET
	if f == podnet.IPv6 {
		family = unix.AF_INET6
	}
	routes, err := netlink.RouteList(c.link, family)
	if err != nil {
		return h, fmt.Errorf("podnet: routes of %s: %w", c.link.Attrs().Name, err)
	}
	for _, r := range routes {
		if r.Gw == nil && r.Dst != nil && len(r.MultiPath) == 0 {
			if p, ok := prefixOf(r.Dst); ok && p.Bits() > 0 {
				h.OnLink = append(h.OnLink, p)
			}
		}
	}
	return h, nil
}

// DeviceMAC returns the address of a vxlan device that is there.
func DeviceMAC(name string) (podnet.MAC, bool) {
	l, err := netlink.LinkByName(name)
	if err != nil || l.Type() != "vxlan" || len(l.Attrs().HardwareAddr) != 6 {
		return podnet.MAC{}, false
	}
	return podnet.MAC(l.Attrs().HardwareAddr), true
}
