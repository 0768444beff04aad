package kube

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Peer is what a node needs to know of any node, itself included.
type Peer struct {
	Name     string
	IPs      []netip.Addr   // internal ones first
	PodCIDRs []netip.Prefix // empty when the pod network does not use them
}

// ConvertPeer reads a Node.
func ConvertPeer(node *v1.Node) Peer {
	p := Peer{Name: node.Name, IPs: nodeIPs(node), PodCIDRs: prefixes(node.Spec.PodCIDRs)}
	if len(p.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		p.PodCIDRs = prefixes([]string{node.Spec.PodCIDR})
	}
	return p
}

// Missed is the name of the own Node, and the names of all others, sorted, where they
// are known and it is not; else others is empty.
func (c *Cluster) Missed() (own string, others []string) {
	own = c.settings.NodeName
	if _, known := c.peers[own]; own == "" || known {
		return own, nil
	}
	return own, slices.Sorted(maps.Keys(c.peers))
}

// Peers are all Nodes that were put, sorted by name.
func (c *Cluster) Peers() []Peer {
	out := make([]Peer, 0, len(c.peers))
	for _, p := range c.peers {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return out
}
