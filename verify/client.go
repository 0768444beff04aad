package verify

import (
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/service"
	"portolan/trace"
)

// client is somebody who calls a frontend.
type client struct {
	name  string // as people call it
	class service.Class
	// src is not valid for the node itself, which chooses its address by the
	// destination.
	src  netip.Addr
	in   string // the interface it comes by, "" to find it by the route to src
	away bool   // a pod of another node: its answers need not pass here
}

// The kinds of clients, as reports name them.
const (
	clientPod       = "pod"
	clientElsewhere = "pod elsewhere"
	clientNode      = "node"
	clientOutside   = "outside"
	clientInRange   = "outside, in range"
	clientSelf      = "endpoint"
)

// clientPort is the source port of all packets.
const clientPort = 40000

// clients are those of one family that exist for every frontend: the node
// itself, a pod on it, a pod elsewhere, and somebody outside, as far as the host
// has room for them.
func (w *world) clients(f service.Family) []client {
	out := []client{{name: clientNode, class: service.FromHost}}
	if c, ok := w.podHere(f); ok {
		out = append(out, c)
	}
	if c, ok := w.podElsewhere(f); ok {
		out = append(out, c)
	}
	if c, ok := w.outside(f); ok {
		out = append(out, c)
	}
	return out
}

// classOf is the class of a client that is not the node itself, as the node's
// detector sees it.
func (w *world) classOf(src netip.Addr, in string) service.Class {
	d := w.in.Services.Node.Detector
	f := service.FamilyOf(src)
	if in == "" {
		in = w.fib.Lookup(netfilter.Question{Dst: src}).Dev
	}
	pod := false
	switch cidr, ok := d.CIDR(f); {
	case ok:
		pod = cidr.Contains(src)
	case d.Bridge != "":
		pod = in == d.Bridge
	case d.InterfacePrefix != "":
		pod = strings.HasPrefix(in, d.InterfacePrefix)
	}
	if pod {
		return service.FromPod
	}
	return service.FromOutside
}

// podHere invents a pod on this node: an address of a pod network of the node
// that nobody has.
func (w *world) podHere(f service.Family) (client, bool) {
	for _, net := range w.podNetworks(f) {
		if a, ok := w.freeAddr(net.To); ok {
			return client{name: clientPod, class: w.classOf(a, net.Dev), src: a}, true
		}
	}
	return client{}, false
}

// podNetworks are the routes that lead straight to pods of this node: to where
// endpoints on it are, else those within the cluster's pod network.
func (w *world) podNetworks(f service.Family) (out []netfilter.Route) {
	add := func(r netfilter.Route) {
		if r.Type == netfilter.RouteUnicast && !r.Via.IsValid() && len(r.Hops) == 0 && !tunnel(w.host, r.Dev) && !slices.ContainsFunc(out, func(x netfilter.Route) bool { return x.To == r.To }) {
			out = append(out, r)
		}
	}
	if cidr, ok := w.in.Services.Node.Detector.CIDR(f); ok {
		for _, in := range w.host.Interfaces {
			for _, a := range in.Addresses {
				if net := a.Prefix.Masked(); net.Bits() < net.Addr().BitLen() && within(net, cidr) {
					add(netfilter.Route{To: net, Dev: in.Name})
				}
			}
		}
		for _, r := range w.host.Routes {
			if within(r.To, cidr) {
				add(r)
			}
		}
	}
	for _, a := range w.localEndpoints(f) {
		if r := w.fib.Lookup(netfilter.Question{Dst: a}); r.Type == netfilter.RouteUnicast {
			add(r.Route)
		}
	}
	return out
}

// localEndpoints are the addresses of endpoints on this node, in order.
func (w *world) localEndpoints(f service.Family) []netip.Addr {
	seen := map[netip.Addr]bool{}
	for s := range w.in.Services.All() {
		for _, p := range s.Ports {
			for _, e := range p.Endpoints {
				if a := e.Addr.Addr(); service.FamilyOf(a) == f && e.LocalTo(w.in.Services.Node.Name) {
					seen[a] = true
				}
			}
		}
	}
	out := make([]netip.Addr, 0, len(seen))
	for a := range seen {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

// podElsewhere invents a pod of another node: in a part of the pod network that
// a next hop or a tunnel leads to.
func (w *world) podElsewhere(f service.Family) (client, bool) {
	cidr, ok := w.in.Services.Node.Detector.CIDR(f)
	if !ok {
		return client{}, false
	}
	for _, r := range w.host.Routes {
		far := r.Via.IsValid() || len(r.Hops) > 0 || tunnel(w.host, r.Dev)
		if r.Type != netfilter.RouteUnicast || !far || !within(r.To, cidr) {
			continue
		}
		if a, ok := w.freeAddr(r.To); ok {
			return client{name: clientElsewhere, class: w.classOf(a, ""), src: a, away: true}, true
		}
	}
	return client{}, false
}

// documentation are networks that nobody has (RFC 5737, RFC 3849).
var documentation = []netip.Prefix{
	netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:ffff::/64"),
}

// outside invents a client that is neither a pod nor on this host: somebody far
// away, else somebody on a network of the host.
func (w *world) outside(f service.Family) (client, bool) {
	for _, net := range documentation {
		if service.FamilyOf(net.Addr()) != f {
			continue
		}
		if c, ok := w.outsider(clientOutside, net); ok {
			return c, true
		}
	}
	for _, in := range w.host.Interfaces {
		for _, a := range in.Addresses {
			if net := a.Prefix.Masked(); service.FamilyOf(net.Addr()) == f && !net.Addr().IsLinkLocalUnicast() {
				if c, ok := w.outsider(clientOutside, net); ok {
					return c, true
				}
			}
		}
	}
	return client{}, false
}

// outsider invents a client in a network, if packets from there are no pod's and
// the host has a route back.
func (w *world) outsider(name string, net netip.Prefix) (client, bool) {
	a, ok := w.freeAddr(net)
	if !ok || a.IsLoopback() {
		return client{}, false
	}
	if w.fib.Known() {
		if r := w.fib.Lookup(netfilter.Question{Dst: a}); r.Type != netfilter.RouteUnicast {
			return client{}, false
		}
	}
	c := client{name: name, class: w.classOf(a, ""), src: a}
	return c, c.class == service.FromOutside && !slices.ContainsFunc(w.podNetworks(service.FamilyOf(a)), func(r netfilter.Route) bool { return r.To.Contains(a) })
}

// freeAddr is an address of a network that neither the host nor an endpoint has,
// from its end.
func (w *world) freeAddr(net netip.Prefix) (netip.Addr, bool) {
	net = net.Masked()
	a := lastOf(net)
	for range 4096 {
		if a = a.Prev(); !net.Contains(a) || a == net.Addr() {
			break
		}
		if local, _ := w.fib.Local(a); !local && !w.endpoints[a] {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// lastOf is the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// within tells whether a network is part of another one.
func within(net, of netip.Prefix) bool {
	return net.IsValid() && net.Addr().Is4() == of.Addr().Is4() && net.Bits() >= of.Bits() && of.Contains(net.Addr())
}

// tunnelNames are the beginnings of names that tools give to tunnels.
var tunnelNames = []string{"flannel", "vxlan", "tunl", "wg", "geneve", "cilium_vxlan", "antrea-gw", "wireguard", "kube-wg", "ipip"}

// tunnel tells whether an interface leads to other nodes, by its kind or, where
// that is not known, by its name.
func tunnel(h *netfilter.Host, dev string) bool {
	if in := h.Interface(dev); in != nil && in.Kind != "" {
		return slices.Contains([]string{"vxlan", "ipip", "wireguard", "geneve", "tun", "gre", "sit"}, in.Kind)
	}
	return slices.ContainsFunc(tunnelNames, func(p string) bool { return strings.HasPrefix(dev, p) })
}

// flow is the packet by which a client calls an address.
func (w *world) flow(c client, to netip.AddrPort, proto uint8) trace.Flow {
	f := trace.Flow{Src: c.src, SrcPort: clientPort, Dst: to.Addr(), DstPort: to.Port(), Proto: proto, In: c.in}
	if c.class == service.FromHost {
		f.Local = true
		f.Src = w.ownSource(to.Addr())
	}
	return f
}

// ownSource is the address that a process of the host calls another one from.
func (w *world) ownSource(dst netip.Addr) netip.Addr {
	r := w.fib.Lookup(netfilter.Question{Dst: dst})
	switch {
	case r.Type == netfilter.RouteLocal:
		return dst
	case r.Src.IsValid():
		return r.Src
	}
	towards := dst
	if r.Via.IsValid() {
		towards = r.Via
	}
	if a, ok := w.host.SourceAddr(r.Dev, towards); ok {
		return a
	}
	if a, ok := w.in.Services.Node.IP(service.FamilyOf(dst)); ok {
		return a
	}
	if dst.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}
