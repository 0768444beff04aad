package live

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/netfilter"
)

// network reads interfaces, routes of all tables, routing rules and
// neighbours.
func network(h *netfilter.Host) error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	at := map[int]int{}
	for _, l := range links {
		a := l.Attrs()
		at[a.Index] = len(h.Interfaces)
		h.Interfaces = append(h.Interfaces, netfilter.Interfaced{
			Name: a.Name, Index: a.Index, Kind: l.Type(), Master: names[a.MasterIndex], MAC: a.HardwareAddr.String(), Down: a.Flags&net.FlagUp == 0,
		})
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing addresses: %w", err)
	}
	for _, a := range addrs {
		i, ok := at[a.LinkIndex]
		p, valid := prefixOf(a.IPNet)
		if !ok || !valid {
			continue
		}
		x := netfilter.InterfaceAddress{Prefix: p, Narrow: a.Scope >= int(netlink.SCOPE_LINK), Secondary: a.Flags&unix.IFA_F_SECONDARY != 0 && p.Addr().Is4()}
		if peer, ok := prefixOf(a.Peer); ok && peer != p {
			x.Peer = peer
		}
		if b, ok := netip.AddrFromSlice(a.Broadcast); ok {
			x.Broadcast = b.Unmap()
		}
		h.Interfaces[i].Addresses = append(h.Interfaces[i].Addresses, x)
	}
	h.Have.Interfaces = true
	if err := routes(h, names); err != nil {
		return err
	}
	return neighbours(h, names)
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return netip.Prefix{}, false
	}
	a = a.Unmap()
	return netip.PrefixFrom(a, ones), a.BitLen() == bits
}

var routeTypes = map[int]netfilter.RouteType{
	unix.RTN_UNICAST: netfilter.RouteUnicast, unix.RTN_LOCAL: netfilter.RouteLocal, unix.RTN_BROADCAST: netfilter.RouteBroadcast,
	unix.RTN_ANYCAST: netfilter.RouteAnycast, unix.RTN_MULTICAST: netfilter.RouteMulticast, unix.RTN_BLACKHOLE: netfilter.RouteBlackhole,
	unix.RTN_UNREACHABLE: netfilter.RouteUnreachable, unix.RTN_PROHIBIT: netfilter.RouteProhibit, unix.RTN_THROW: netfilter.RouteThrow,
}

func routes(h *netfilter.Host, names map[int]string) error {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return fmt.Errorf("listing routes: %w", err)
		}
		for _, r := range list {
			x := netfilter.Route{Table: r.Table, Dev: names[r.LinkIndex], Metric: uint32(r.Priority), TOS: uint8(r.Tos), Type: routeTypes[r.Type]}
			var ok bool
			if x.To, ok = prefixOf(r.Dst); !ok {
				x.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
				if family == netlink.FAMILY_V6 {
					x.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
				}
			}
			x.Via, x.Src = addrOf(r.Gw), addrOf(r.Src)
			for _, n := range r.MultiPath {
				x.Hops = append(x.Hops, netfilter.NextHop{Via: addrOf(n.Gw), Dev: names[n.LinkIndex], Weight: n.Hops + 1})
			}
			h.Routes = append(h.Routes, x)
		}
		if err := routingRules(h, family); err != nil {
			return err
		}
	}
	h.Have.Routes = true
	return nil
}

// addrOf gives the zero Addr for nil.
func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func routingRules(h *netfilter.Host, family int) error {
	list, err := netlink.RuleList(family)
	if err != nil {
		return fmt.Errorf("listing routing rules: %w", err)
	}
	f := netfilter.IPv4
	if family == netlink.FAMILY_V6 {
		f = netfilter.IPv6
	}
	for _, r := range list {
		x := netfilter.RoutingRule{Priority: uint32(max(r.Priority, 0)), Family: f, Not: r.Invert, IIF: r.IifName, OIF: r.OifName, Mark: r.Mark, Table: r.Table, TOS: uint8(r.Tos), SuppressPrefix: -1}
		if r.Mask != nil {
			x.MarkMask = *r.Mask
		} else if r.Mark != 0 {
			x.MarkMask = 0xffffffff
		}
		x.From, _ = prefixOf(r.Src)
		x.To, _ = prefixOf(r.Dst)
		if r.SuppressPrefixlen >= 0 {
			x.SuppressPrefix = r.SuppressPrefixlen
		}
		if r.IPProto > 0 {
			x.Proto = uint8(r.IPProto)
		}
		if r.Sport != nil {
			x.SrcPorts = netfilter.PortRange{First: r.Sport.Start, Last: r.Sport.End}
		}
		if r.Dport != nil {
			x.DstPorts = netfilter.PortRange{First: r.Dport.Start, Last: r.Dport.End}
		}
		if r.Goto > 0 {
			x.Action, x.Goto = netfilter.RuleGoto, uint32(r.Goto)
		}
		switch r.Type {
		case unix.FR_ACT_BLACKHOLE:
			x.Action = netfilter.RuleBlackhole
		case unix.FR_ACT_UNREACHABLE:
			x.Action = netfilter.RuleUnreachable
		case unix.FR_ACT_PROHIBIT:
			x.Action = netfilter.RuleProhibit
		}
		h.RoutingRules = append(h.RoutingRules, x)
	}
	h.Have.RoutingRules = true
	return nil
}

var neighbourStates = map[int]string{
	unix.NUD_INCOMPLETE: "INCOMPLETE", unix.NUD_REACHABLE: "REACHABLE", unix.NUD_STALE: "STALE", unix.NUD_DELAY: "DELAY",
	unix.NUD_PROBE: "PROBE", unix.NUD_FAILED: "FAILED", unix.NUD_NOARP: "NOARP", unix.NUD_PERMANENT: "PERMANENT",
}

func neighbours(h *netfilter.Host, names map[int]string) error {
	list, err := netlink.NeighList(0, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("listing neighbours: %w", err)
	}
	for _, n := range list {
		if a := addrOf(n.IP); a.IsValid() {
			h.Neighbours = append(h.Neighbours, netfilter.Neighbour{Addr: a, MAC: n.HardwareAddr.String(), Dev: names[n.LinkIndex], State: neighbourStates[n.State]})
		}
	}
	h.Have.Neighbours = true
	return nil
}

// sysctlPatterns are the files a walk depends on.
var sysctlPatterns = []string{
	"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "net/ipv4/conf/*/forwarding", "net/ipv4/conf/*/route_localnet",
	"net/ipv4/conf/*/rp_filter", "net/ipv4/conf/*/accept_local", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables",
	"net/ipv4/vs/*", "net/netfilter/nf_conntrack_tcp_loose", "net/netfilter/nf_conntrack_tcp_be_liberal", "net/ipv4/ip_local_port_range", "net/ipv4/ip_local_reserved_ports",
	"net/netfilter/nf_conntrack_count", "net/netfilter/nf_conntrack_max", "net/ipv4/conf/*/arp_ignore",
}

func sysctls(h *netfilter.Host) error {
	const root = "/proc/sys/"
	for _, pattern := range sysctlPatterns {
		files, err := filepath.Glob(root + pattern)
		if err != nil {
			return fmt.Errorf("looking for %s: %w", pattern, err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("reading a sysctl: %w", err)
			}
			parts := strings.Split(strings.TrimPrefix(file, root), "/")
			for i, p := range parts {
				parts[i] = strings.ReplaceAll(p, ".", "/")
			}
			h.Sysctls[strings.Join(parts, ".")] = strings.TrimSpace(string(b))
		}
	}
	h.Have.Sysctls = true
	if _, ok := h.Sysctls["net.bridge.bridge-nf-call-iptables"]; !ok {
		// Without br_netfilter bridged packets see no rule.
		h.Sysctls["net.bridge.bridge-nf-call-iptables"] = "0"
		h.Sysctls["net.bridge.bridge-nf-call-ip6tables"] = "0"
	}
	return nil
}
