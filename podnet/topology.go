package podnet

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Node is a Node object, as far as the pod network cares.
type Node struct {
	Name        string
	Created     time.Time
	PodCIDRs    []netip.Prefix
	Addresses   []netip.Addr // of type InternalIP
	Annotations map[string]string
	// NetworkUp: the condition NetworkUnavailable is False.
	NetworkUp bool
}

// PodCIDR returns the node's range of a family, and whether it has one.
func (n Node) PodCIDR(f Family) (netip.Prefix, bool) {
	for _, p := range n.PodCIDRs {
		if f.of(p.Addr()) {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// Self is what this node knows of itself.
type Self struct {
	Name   string
	Device string // the external interface
	MTU    int    // of Device, bytes
	V4, V6 Half
}

// Half is the part of Self of one family.
type Half struct {
	Addr netip.Addr // on Device; packets to peers leave with it
	// Public is where peers reach this node: Addr, but behind a NAT.
	Public netip.Addr
	MAC    MAC // of the vxlan device
	// OnLink are the ranges that are reached through Device without a gateway.
	OnLink []netip.Prefix
}

// Half returns the part of one family.
func (s Self) Half(f Family) Half {
	if f == IPv6 {
		return s.V6
	}
	return s.V4
}

// Topology is the pod network of one family as this node sees it.
type Topology struct {
	Family  Family
	Config  Config
	Self    Self
	PodCIDR netip.Prefix // of this node
	Peers   []Peer       // by name
}

// Peer is another node.
type Peer struct {
	Name    string
	Since   time.Time
	PodCIDR netip.Prefix
	// PublicIP is where the node is reached from outside the pod network.
	PublicIP netip.Addr
	MAC      MAC // of its vxlan device; none with host-gw
	// Direct: it is on this node's link, and a plain route leads to it.
	Direct bool
}

// Problem is a node that cannot take part.
type Problem struct {
	Node string
	Err  error
}

func (p Problem) String() string { return fmt.Sprintf("node %s: %v", p.Node, p.Err) }

// Given is what a Topology is worked out from: Self is what this host is, Own what the
// cluster says of it, which may be among Nodes.
type Given struct {
	Config      Config
	Annotations Annotations
	Self        Self
	Own         Node
	Nodes       []Node
}

// Resolve works out the Topology of a family. Nodes without the annotations of
// this network are not of it and are passed over; those that cannot take part
// come back as Problems, and the others are not held back by them. It fails
// only when this node itself cannot take part.
func (g Given) Resolve(f Family) (Topology, []Problem, error) {
	c, self, own := g.Config, g.Self, g.Own
	t := Topology{Family: f, Config: c, Self: self}
	cidr, ok := own.PodCIDR(f)
	if !ok {
		return t, nil, fmt.Errorf("podnet: node %s (%s) %w", own.Name, f, errNoPodCIDR)
	}
	if network := c.NetworkOf(f); !holds(network, cidr) {
		return t, nil, fmt.Errorf("podnet: pod CIDR %s of node %s is not within %s of net-conf.json: one of the two is wrong", cidr, own.Name, network)
	}
	if !self.Half(f).Addr.IsValid() {
		return t, nil, fmt.Errorf("podnet: interface %s of node %s has no usable %s address", self.Device, own.Name, f)
	}
	if addr := self.Half(f).Addr; c.NetworkOf(f).Contains(addr) {
		return t, nil, fmt.Errorf("podnet: address %s of node %s lies within the pod network %s of net-conf.json: routes of the node's own network would be taken for routes to pods", addr, own.Name, c.NetworkOf(f))
	}
	if half := self.Half(f); c.Backend.Type == HostGW && half.Public != half.Addr {
		return t, nil, fmt.Errorf("podnet: node %s has the public address %s behind a NAT of %s: host-gw needs nodes on one link; use vxlan", own.Name, half.Public, half.Addr)
	}
	t.PodCIDR = cidr
	nodes := slices.Clone(g.Nodes)
	slices.SortFunc(nodes, func(x, y Node) int { return cmp.Or(x.Created.Compare(y.Created), cmp.Compare(x.Name, y.Name)) })
	taken := &taken{cidrs: []owned[netip.Prefix]{{own.Name, cidr}}, addrs: map[netip.Addr]string{self.Half(f).Public: own.Name}, macs: map[MAC]string{self.Half(f).MAC: own.Name}}
	var problems []Problem
	for _, n := range nodes {
		if n.Name == own.Name || n.Annotations[g.Annotations.managed()] != "true" {
			continue
		}
		p, err := t.peer(g.Annotations, n)
		if err == nil {
			err = taken.take(p)
		}
		if err != nil {
			problems = append(problems, Problem{n.Name, err})
			continue
		}
		t.Peers = append(t.Peers, p)
	}
	slices.SortFunc(t.Peers, func(x, y Peer) int { return cmp.Compare(x.Name, y.Name) })
	return t, problems, nil
}

// peer reads from a Node how its pods are reached, or says why they cannot be and what to
// do about it.
func (t Topology) peer(a Annotations, n Node) (Peer, error) {
	c, f := t.Config, t.Family
	if kind := BackendType(n.Annotations[a.backendType()]); kind != c.Backend.Type {
		return Peer{}, fmt.Errorf("has backend %q, and this node %q: they reach each other when both have the same (restart the one with the old net-conf.json)", kind, c.Backend.Type)
	}
	cidr, ok := n.PodCIDR(f)
	if !ok {
		return Peer{}, errNoPodCIDR
	}
	if network := c.NetworkOf(f); !holds(network, cidr) {
		return Peer{}, fmt.Errorf("pod CIDR %s is not within %s of net-conf.json", cidr, network)
	}
	addr, err := netip.ParseAddr(n.Annotations[a.publicIP(f)])
	if err != nil || !f.of(addr) {
		return Peer{}, fmt.Errorf("annotation %s %q is not an %s address", a.publicIP(f), n.Annotations[a.publicIP(f)], f)
	}
	if !addr.IsGlobalUnicast() || addr.Zone() != "" {
		return Peer{}, fmt.Errorf("annotation %s %q is not an address that one node has and others reach", a.publicIP(f), addr)
	}
	if network := c.NetworkOf(f); network.Contains(addr) {
		return Peer{}, fmt.Errorf("address %s (annotation %s) lies within the pod network %s: packets to it would go round in circles", addr, a.publicIP(f), network)
	}
	p := Peer{Name: n.Name, Since: n.Created, PodCIDR: cidr, PublicIP: addr}
	onLink := slices.ContainsFunc(t.Self.Half(f).OnLink, func(r netip.Prefix) bool { return r.Contains(addr) })
	switch c.Backend.Type {
	case HostGW:
		if !onLink {
			return Peer{}, fmt.Errorf("address %s is not on the link of interface %s: host-gw needs nodes on one link; use vxlan, or give the network a route %s via %s", addr, t.Self.Device, cidr, addr)
		}
		p.Direct = true
	case VXLAN:
		mac, vni, err := a.vtep(n, f)
		if err != nil {
			return Peer{}, err
		}
		if vni != c.Backend.VNI {
			return Peer{}, fmt.Errorf("annotation %s has VNI %d, and net-conf.json of this node %d", a.backendData(f), vni, c.Backend.VNI)
		}
		p.MAC, p.Direct = mac, c.Backend.DirectRouting && onLink
	default:
		panic("podnet: unknown backend " + string(c.Backend.Type))
	}
	return p, nil
}

// taken is what the nodes so far have. Of two nodes that claim the same the
// older has it.
type taken struct {
	cidrs []owned[netip.Prefix]
	addrs map[netip.Addr]string
	macs  map[MAC]string
}

type owned[T any] struct {
	node string
	it   T
}

// take reserves what a peer has; two nodes that have the same would take each other's
// packets away.
func (t *taken) take(p Peer) error {
	for _, o := range t.cidrs {
		if o.it.Overlaps(p.PodCIDR) {
			return fmt.Errorf("pod CIDR %s overlaps %s of node %s: give one of them another", p.PodCIDR, o.it, o.node)
		}
	}
	if other, ok := t.addrs[p.PublicIP]; ok {
		return fmt.Errorf("address %s is also that of node %s: choose the interface of each node (--iface, or annotation public-ip-overwrite)", p.PublicIP, other)
	}
	if other, ok := t.macs[p.MAC]; ok && p.MAC != (MAC{}) {
		return fmt.Errorf("VtepMAC %s is also that of node %s, as when one machine is a copy of the other: delete the vxlan device and the annotation backend-data of one of them", p.MAC, other)
	}
	t.cidrs = append(t.cidrs, owned[netip.Prefix]{p.Name, p.PodCIDR})
	t.addrs[p.PublicIP], t.macs[p.MAC] = p.Name, p.Name
	return nil
}

// holds tells whether inner lies within outer.
func holds(outer, inner netip.Prefix) bool {
	return outer.IsValid() && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// Check says why the objects of a Topology cannot work on this node.
func (t Topology) Check() error {
	least := 576
	if t.Family == IPv6 {
		least = 1280
	}
	if mtu := t.MTU(); mtu < least {
		return fmt.Errorf("podnet: %d bytes are left for packets of pods, and %s needs %d: raise the MTU of %s or of net-conf.json", mtu, t.Family, least, t.Self.Device)
	}
	return nil
}
