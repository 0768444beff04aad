package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/podnet"
)

// Apply makes what comes in the order of the containers, then removes what goes
// in the reverse order, so that a packet finds a route only with all that
// belongs to it. An object that the kernel refuses comes back as a
// *dataplane.Refusal.
func (n *Network) Apply(_ context.Context, p dataplane.Plan) error {
	for _, c := range p.Changes {
		for _, r := range c.Replaced {
			if err := n.replace(r.Old, r.New); err != nil {
				return refusal("replace", r.New, err)
			}
		}
		for _, o := range c.Created {
			if err := n.create(o); err != nil {
				return refusal("create", o, err)
			}
		}
	}
	for _, c := range slices.Backward(p.Changes) {
		for _, o := range c.Deleted {
			if err := n.remove(o); err != nil && !gone(err) {
				return refusal("delete", o, err)
			}
		}
	}
	return nil
}

func refusal(verb string, o dataplane.Object, err error) error {
	return &dataplane.Refusal{Key: o.Key, Err: fmt.Errorf("podnet: %s %s %q: %w", verb, o.Key.Container[2:], o.Body, err)}
}

// gone tells that what should go is not there, or went with its device.
func gone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// create makes one object: a device, or what belongs to one.
func (n *Network) create(o dataplane.Object) error {
	v, err := podnet.Parse(o)
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case podnet.Link:
		return n.addLink(v)
	case podnet.Address:
		return n.onLink(v.Device, func(l netlink.Link) error {
			return n.handle.AddrReplace(l, &netlink.Addr{IPNet: hostNet(v.Addr), Flags: unix.IFA_F_NODAD})
		})
	case podnet.Neighbour:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.NeighSet(neighbour(l, v, n.unixFamily())) })
	case podnet.Forward:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.NeighSet(forward(l, v)) })
	case podnet.Route:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.RouteReplace(route(l, v)) })
	default:
		panic(fmt.Sprintf("podnet: unknown object %T", v))
	}
}

// replace changes an object in place. A device whose kind cannot be changed is
// made anew; what depended on it went with it, so that all is looked at again.
func (n *Network) replace(old, now dataplane.Object) error {
	if now.Key.Container != podnet.Links {
		return n.create(now)
	}
	a, errOld := podnet.Parse(old)
	b, errNew := podnet.Parse(now)
	if err := errors.Join(errOld, errNew); err != nil {
		return err
	}
	from, to := a.(podnet.Link), b.(podnet.Link)
	same := from
	same.MTU, same.MAC = to.MTU, to.MAC
	if same != to {
		if err := n.removeLink(from.Name); err != nil && !gone(err) {
			return err
		}
		if err := n.addLink(to); err != nil {
			return err
		}
		dataplane.Tell(n.changed, dataplane.Notice{})
		return nil
	}
	return n.onLink(to.Name, func(l netlink.Link) error {
		if from.MAC != to.MAC {
			if err := n.handle.LinkSetHardwareAddr(l, to.MAC[:]); err != nil {
				return err
			}
		}
		return n.handle.LinkSetMTU(l, to.MTU)
	})
}

// remove takes one object away.
func (n *Network) remove(o dataplane.Object) error {
	v, err := podnet.Parse(o)
	if err != nil {
		return err
	}
	switch v := v.(type) {
	case podnet.Link:
		return n.removeLink(v.Name)
	case podnet.Address:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.AddrDel(l, &netlink.Addr{IPNet: hostNet(v.Addr)}) })
	case podnet.Neighbour:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.NeighDel(neighbour(l, v, n.unixFamily())) })
	case podnet.Forward:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.NeighDel(forward(l, v)) })
	case podnet.Route:
		return n.onLink(v.Device, func(l netlink.Link) error { return n.handle.RouteDel(route(l, v)) })
	default:
		panic(fmt.Sprintf("podnet: unknown object %T", v))
	}
}

func (n *Network) removeLink(name string) error {
	return n.onLink(name, n.handle.LinkDel)
}

func (n *Network) onLink(name string, do func(netlink.Link) error) error {
	l, err := n.handle.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return do(l)
}

// addLink makes a device with its Ethernet address at once, so that systemd
// does not give it another, and brings it up.
func (n *Network) addLink(v podnet.Link) error {
	return n.onLink(v.Device, func(external netlink.Link) error {
		l := &netlink.Vxlan{
			LinkAttrs: netlink.LinkAttrs{Name: v.Name, MTU: v.MTU, HardwareAddr: v.MAC[:]},
			VxlanId:   v.VNI, VtepDevIndex: external.Attrs().Index, SrcAddr: net.IP(v.Local.AsSlice()), Port: v.Port, Learning: v.Learning, GBP: v.GBP, UDPCSum: true,
		}
		err := n.handle.LinkAdd(l)
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: another device has the name %s, or the VNI %d at UDP port %d: remove it, or choose another VNI or Port in net-conf.json", err, v.Name, v.VNI, v.Port)
		}
		if err != nil {
			return err
		}
		if err := refuseRouterAdvertisements(v.Name); err != nil {
			return err
		}
		return n.handle.LinkSetUp(l)
	})
}

func neighbour(l netlink.Link, v podnet.Neighbour, family int) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: family, State: unix.NUD_PERMANENT, Type: unix.RTN_UNICAST, IP: v.Addr.AsSlice(), HardwareAddr: v.MAC[:]}
}

func forward(l netlink.Link, v podnet.Forward) *netlink.Neigh {
	return &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, State: unix.NUD_PERMANENT, Flags: unix.NTF_SELF, IP: v.Dst.AsSlice(), HardwareAddr: v.MAC[:]}
}

func route(l netlink.Link, v podnet.Route) *netlink.Route {
	r := &netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_UNIVERSE, Dst: &net.IPNet{IP: v.Dst.Addr().AsSlice(), Mask: net.CIDRMask(v.Dst.Bits(), v.Dst.Addr().BitLen())}, Gw: v.Via.AsSlice()}
	if v.OnLink {
		r.SetFlag(netlink.FLAG_ONLINK)
	}
	return r
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}
