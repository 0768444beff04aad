package journey

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// place is a node with its routes.
type place struct {
	Node
	fib *netfilter.FIB
}

// mapping knows which node has what.
type mapping struct{ nodes []place }

// passage is how a packet gets from one node to another one.
type passage struct {
	node   *place
	in     string // the interface it arrives by
	over   string // in words
	remark string // what had to be assumed
	lost   string // why it does not get anywhere
	// The packet that a tunnel makes of it, and the interface that one arrives by.
	outer   trace.Flow
	outerIn string
}

// tunnelPort is where flannel's vxlan devices listen: Linux's own default.
const tunnelPort = 8472

// start finds the node that a flow comes to first, and the interface if it comes from
// a pod of that node.
func (m *mapping) start(f trace.Flow, at string) (n *place, in string, err error) {
	if at != "" {
		i := slices.IndexFunc(m.nodes, func(p place) bool { return p.Name == at })
		if i < 0 {
			return nil, "", fmt.Errorf("journey: there is no node %s", at)
		}
		return &m.nodes[i], "", nil
	}
	if n, _ := m.owner(f.Src); n != nil {
		return n, "", nil
	}
	if n, in := m.podsOf(f.Src); n != nil {
		return n, in, nil
	}
	if n, _ := m.owner(f.Dst); n != nil {
		return n, "", nil
	}
	return nil, "", fmt.Errorf("journey: no node has %v, its network or %v: say which node the packet comes to first", f.Src, f.Dst)
}

// owner finds the one node that has an address, and the interface with it.
func (m *mapping) owner(a netip.Addr) (n *place, in string) {
	for i := range m.nodes {
		for _, dev := range m.nodes[i].Tracer.Host().Interfaces {
			if !a.IsLoopback() && slices.ContainsFunc(dev.Addresses, func(x netfilter.InterfaceAddress) bool { return sameAddr(a, x.Prefix.Addr()) }) {
				if n != nil {
					return nil, "" // like docker0, which every node has
				}
				n, in = &m.nodes[i], dev.Name
			}
		}
	}
	return n, in
}

// podsOf finds the one node with a network of its own that an address is in.
func (m *mapping) podsOf(a netip.Addr) (n *place, dev string) {
	for i := range m.nodes {
		r := m.nodes[i].fib.Lookup(netfilter.Question{Dst: a})
		if r.Type != netfilter.RouteUnicast || r.Via.IsValid() || len(r.Hops) > 0 || m.isTunnel(&m.nodes[i], r.Dev) {
			continue
		}
		if n != nil {
			return nil, "" // the network that nodes share
		}
		n, dev = &m.nodes[i], r.Dev
	}
	return n, dev
}

// from finds where a packet goes that leaves a node. ok is false where it does not come
// to another one; then lost may say why.
func (m *mapping) from(n *place, o *trace.Outcome) (to passage, ok bool) {
	r := n.fib.Lookup(netfilter.Question{Dst: o.Dst, Mark: o.Mark, Out: o.Out})
	hop := o.Dst
	if r.Via.IsValid() {
		hop = r.Via
	}
	if m.isTunnel(n, o.Out) {
		return m.through(n, o.Out, hop)
	}
	if to.node, to.in = m.owner(hop); to.node != nil && to.node.Name != n.Name {
		to.over = fmt.Sprintf("by %s to %s, the address of %s on %s", o.Out, hop, to.in, to.node.Name)
		return to, true
	}
	if !r.Via.IsValid() {
		return passage{}, false // delivered on a network of this node
	}
	if to.node, _ = m.owner(o.Dst); to.node == nil {
		to.node, _ = m.podsOf(o.Dst)
	}
	if to.node == nil || to.node.Name == n.Name {
		return passage{}, false // to somewhere outside
	}
	to.in = to.node.fib.Lookup(netfilter.Question{Dst: n.address(to.node)}).Dev
	to.over = fmt.Sprintf("by %s to the router %s, and from there to %s", o.Out, hop, to.node.Name)
	to.remark = fmt.Sprintf("the router %s sends what is for %s to %s", hop, o.Dst, to.node.Name)
	return to, true
}

// through finds the other end of a tunnel.
func (m *mapping) through(n *place, dev string, hop netip.Addr) (to passage, ok bool) {
	peer, in := m.owner(hop)
	if peer == nil || peer.Name == n.Name || !m.isTunnel(peer, in) {
		return passage{lost: fmt.Sprintf("no node has the other end of %s, %s", dev, hop)}, false
	}
	outer := trace.Flow{Local: true, Src: n.address(peer), Dst: peer.address(n), DstPort: tunnelPort, Proto: netfilter.UDP}
	if !outer.Src.IsValid() || !outer.Dst.IsValid() {
		return passage{lost: fmt.Sprintf("%s and %s have no addresses for the packets of %s", n.Name, peer.Name, dev)}, false
	}
	_, outerIn := m.owner(outer.Dst)
	return passage{
		node: peer, in: in, outer: outer, outerIn: outerIn,
		over:   fmt.Sprintf("within %s to %s of %s, as UDP %s -> %s:%d", dev, in, peer.Name, outer.Src, outer.Dst, tunnelPort),
		remark: fmt.Sprintf("%s is a vxlan to UDP port %d, and its ends are %s and %s", dev, tunnelPort, outer.Src, outer.Dst),
	}, true
}

// address is the one of a node that another one knows it by: the first of an interface
// that is neither loopback, bridge nor tunnel, of a network that both are on, else any
// such.
func (p *place) address(peer *place) netip.Addr {
	var first netip.Addr
	h := p.Tracer.Host()
	for _, in := range h.Interfaces {
		if bridge, _ := h.IsBridge(in.Name); bridge || tunnelName(in.Name, in.Kind) || in.Kind == "dummy" {
			continue
		}
		for _, a := range in.Addresses {
			addr := a.Prefix.Addr()
			if addr.IsLoopback() || addr.IsLinkLocalUnicast() {
				continue
			}
			if !first.IsValid() {
				first = addr
			}
			if r := peer.fib.Lookup(netfilter.Question{Dst: addr}); r.Type == netfilter.RouteUnicast && !r.Via.IsValid() {
				return addr
			}
		}
	}
	return first
}

func (m *mapping) isTunnel(n *place, dev string) bool {
	in := n.Tracer.Host().Interface(dev)
	if in == nil {
		return tunnelName(dev, "")
	}
	return tunnelName(in.Name, in.Kind)
}

// tunnelName tells whether an interface is a vxlan or the like, by its kind, or by the
// names that flannel, Calico and Cilium give.
func tunnelName(name, kind string) bool {
	if kind != "" {
		return kind == "vxlan" || kind == "geneve"
	}
	return strings.HasPrefix(name, "flannel.") || strings.HasPrefix(name, "vxlan")
}
