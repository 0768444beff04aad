package judge

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/lab"
)

// Foreign rules may drop what finds neighbours, and then a packet that all rules let
// through goes nowhere. So every host knows its neighbours for good before the
// rules come.

// neighbour is a host on a link.
type neighbour struct {
	addr netip.Addr
	mac  net.HardwareAddr
}

// acquaint makes neighbours known for good on the switch and on the judged node's
// bridge.
func (w *world) acquaint() error {
	var onSwitch, onBridge []neighbour
	for _, name := range []string{outside, judged, other} {
		list, err := addressesOf(w.stations[name].host, "eth0")
		if err != nil {
			return err
		}
		onSwitch = append(onSwitch, list...)
	}
	for _, a := range lab.GatewayAddrs {
		mac, err := w.lookUp(a)
		if err != nil {
			return err
		}
		onSwitch = append(onSwitch, neighbour{a, mac})
	}
	bridge, err := addressesOf(&w.node.Host, "cni0")
	if err != nil {
		return err
	}
	onBridge = append(onBridge, bridge...)
	pods := append(slices.Clone(podsHere), visitor)
	for _, name := range pods {
		list, err := addressesOf(w.stations[name].host, "eth0")
		if err != nil {
			return err
		}
		onBridge = append(onBridge, list...)
	}
	for _, name := range pods {
		if err := introduce(w.stations[name].host, "eth0", onBridge); err != nil {
			return err
		}
	}
	for _, name := range []string{outside, judged, other} {
		if err := introduce(w.stations[name].host, "eth0", onSwitch); err != nil {
			return err
		}
	}
	return introduce(&w.node.Host, "cni0", onBridge)
}

func addressesOf(h *lab.Host, dev string) (out []neighbour, err error) {
	err = h.Do(func() error {
		link, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
		for _, a := range addrs {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				out = append(out, neighbour{ip.Unmap(), link.Attrs().HardwareAddr})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("judge: addresses of %s in %s: %w", dev, h.Name, err)
	}
	return out, nil
}

// introduce writes all but its own addresses into a host's neighbour table.
func introduce(h *lab.Host, dev string, list []neighbour) error {
	err := h.Do(func() error {
		link, err := netlink.LinkByName(dev)
		if err != nil {
			return err
		}
		for _, n := range list {
			if slices.Equal(n.mac, link.Attrs().HardwareAddr) {
				continue
			}
			err := netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: unix.NUD_PERMANENT, IP: n.addr.AsSlice(), HardwareAddr: n.mac})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("judge: neighbours of %s in %s: %w", dev, h.Name, err)
	}
	return nil
}

// lookUp has the judged node find out the link address of the way out.
func (w *world) lookUp(a netip.Addr) (mac net.HardwareAddr, err error) {
	if _, err := w.stations[judged].source(a); err != nil {
		return nil, err
	}
	// An unlucky datagram of nobody; only the question before it counts.
	p := probe{id: 1, from: judged, src: w.node.Addr(a), dst: a, sport: 9, dport: 9, proto: 17, ttl: 64}
	if err := w.stations[judged].send(p); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(time.Minute)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for mac == nil {
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("judge: nobody has %v", a)
		}
		err := w.node.Do(func() error {
			list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
			for _, n := range list {
				if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a && len(n.HardwareAddr) > 0 {
					mac = n.HardwareAddr
				}
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("judge: neighbours of %s: %w", judged, err)
		}
		<-look.C
	}
	return mac, nil
}
