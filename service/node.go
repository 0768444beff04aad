package service

import (
	"net/netip"
	"slices"
)

// Node is what every Service on this node depends on. When it changes, all
// Services are rendered again; compare with Equal.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone; empty means no zone routing
	// IPs are the node's own addresses, first of each family counts: a source
	// range that contains it also admits the load balancer address as source.
	IPs []netip.Addr
	// Detector tells pod traffic from other traffic.
	Detector PodDetector
	// MasqueradeAll masquerades everything sent to a cluster IP.
	MasqueradeAll bool
	NodePorts     NodePortAddresses
	// ServiceCIDRs are the networks that cluster IPs come from, sorted, without
	// duplicates; empty when they are not known. Both families.
	ServiceCIDRs []netip.Prefix
	// LargeCluster is set above LargeClusterOn endpoints and cleared below
	// LargeClusterOff; comments on endpoint rules are left out then.
	LargeCluster bool
	// Leaving: the Node is being deleted, so load balancers should send it no new
	// traffic. No rule depends on it.
	Leaving bool
}

// Thresholds of Node.LargeCluster, in endpoints summed over all Service ports
// and states. kube-proxy has only the upper one; the gap keeps a cluster that
// breathes around it from being rewritten each time.
const (
	LargeClusterOn  = 1000
	LargeClusterOff = 500
)

// Equal tells whether both Nodes ask for the same rules; Leaving does not count.
func (n Node) Equal(o Node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && slices.Equal(n.IPs, o.IPs) &&
		n.Detector.Equal(o.Detector) && n.MasqueradeAll == o.MasqueradeAll &&
		n.NodePorts.Equal(o.NodePorts) && slices.Equal(n.ServiceCIDRs, o.ServiceCIDRs) && n.LargeCluster == o.LargeCluster
}

// IP returns the node's address of the family, and whether it has one.
func (n Node) IP(f Family) (netip.Addr, bool) {
	for _, a := range n.IPs {
		if FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// PodDetector recognises traffic that comes from this cluster's pods
// (kube-proxy's detectLocalMode). At most one of its fields is in use; none
// means that pods get no special treatment.
type PodDetector struct {
	CIDRs           []netip.Prefix // source address; the first of each family counts
	Bridge          string         // arrival interface
	InterfacePrefix string         // start of the arrival interface's name
}

// Equal tells whether both recognise the same traffic.
func (d PodDetector) Equal(o PodDetector) bool {
	return slices.Equal(d.CIDRs, o.CIDRs) && d.Bridge == o.Bridge && d.InterfacePrefix == o.InterfacePrefix
}

// CIDR returns the pod CIDR of the family, and whether there is one.
func (d PodDetector) CIDR(f Family) (netip.Prefix, bool) {
	for _, p := range d.CIDRs {
		if FamilyOf(p.Addr()) == f {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// Detects tells whether pod traffic of the family can be recognised at all.
func (d PodDetector) Detects(f Family) bool {
	_, ok := d.CIDR(f)
	return ok || d.Bridge != "" || d.InterfacePrefix != ""
}

// NodePortAddresses says on which addresses of the node NodePorts answer.
type NodePortAddresses struct {
	// Prefixes limit the addresses; a family without a prefix is not limited
	// (kube-proxy's rule, also in its nftables mode).
	Prefixes []netip.Prefix
	// Local are the addresses of this node's interfaces, loopback included.
	// They are needed only for a family with a Prefix.
	Local []netip.Addr
	// Localhost lets NodePorts answer on IPv4 loopback (iptables mode).
	Localhost bool
}

// Equal tells whether both select the same addresses.
func (a NodePortAddresses) Equal(o NodePortAddresses) bool {
	return slices.Equal(a.Prefixes, o.Prefixes) && slices.Equal(a.Local, o.Local) && a.Localhost == o.Localhost
}

// All tells whether every local address of the family answers.
func (a NodePortAddresses) All(f Family) bool {
	limited := false
	for _, p := range a.Prefixes {
		if FamilyOf(p.Addr()) == f {
			limited = true
			if p.Bits() == 0 {
				return true
			}
		}
	}
	return !limited
}

// Selected returns the local addresses of the family inside the prefixes,
// sorted. Loopback is represented by 127.0.0.1 alone, and only where Localhost
// allows it; IPv6 loopback never answers (as in kube-proxy 1.37).
func (a NodePortAddresses) Selected(f Family) []netip.Addr {
	var out []netip.Addr
	for _, addr := range a.Local {
		if FamilyOf(addr) != f || (addr.IsLoopback() && (f == IPv6 || !a.Localhost)) {
			continue
		}
		if slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// AllowsLocalhost tells whether NodePorts answer on IPv4 loopback: wanted, and
// loopback is among the addresses.
func (a NodePortAddresses) AllowsLocalhost() bool {
	if !a.Localhost {
		return false
	}
	return a.All(IPv4) || slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool {
		return p.Addr().Is4() && (p.Addr().IsLoopback() || p.Contains(netip.AddrFrom4([4]byte{127})))
	})
}
