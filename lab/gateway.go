package lab

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// addGateway makes the way out of the lab. It leads nowhere, and says so: whoever
// sends a packet that no node answers for hears that it is prohibited, which tells
// it from one that a node dropped.
func (l *Lab) addGateway() error {
	var err error
	if l.gateway, err = l.newHost("gateway", GatewayAddrs, router...); err != nil {
		return err
	}
	if err := l.join(&l.gateway); err != nil {
		return err
	}
	for _, family := range SwitchNetworks {
		if err := l.gateway.prohibit(family.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// prohibit makes the host answer with an ICMP error, administratively prohibited,
// what it would forward and has no other route for. Unlike "unreachable" that also
// ends the waiting of a UDP socket. Where this machine has iptables, a rule does
// it: for a route, Linux 6.18 sends one error a second to each IPv4 address.
func (h *Host) prohibit(like netip.Addr) error {
	route := &netlink.Route{Dst: everything(like), Type: unix.RTN_PROHIBIT}
	if h.prohibitByRule(like) == nil {
		link, err := h.links.LinkByName("eth0")
		if err != nil {
			return fmt.Errorf("lab: host %s: %w", h.Name, err)
		}
		route = &netlink.Route{Dst: everything(like), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
	}
	if err := h.links.RouteAdd(route); err != nil {
		return fmt.Errorf("lab: host %s: prohibit: %w", h.Name, err)
	}
	return nil
}

// prohibitByRule has a rule do it, of whichever variant the kernel has.
func (h *Host) prohibitByRule(like netip.Addr) error {
	program, kind := "ip6tables", "icmp6-adm-prohibited"
	if like.Is4() {
		program, kind = "iptables", "icmp-admin-prohibited"
	}
	var err error
	for _, variant := range []Variant{NFT, Legacy} { // the kernel need not have both
		err = h.Command(context.Background(), variant, program, "-I", "FORWARD", "-j", "REJECT", "--reject-with", kind).Run()
		if err == nil {
			break
		}
	}
	return err
}
