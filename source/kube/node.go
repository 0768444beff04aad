package kube

import (
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"

	"portolan/service"
)

// DetectMode is how pod traffic is recognised (kube-proxy's detectLocalMode).
type DetectMode string

// The modes of kube-proxy 1.37.
const (
	DetectClusterCIDR     DetectMode = "ClusterCIDR"
	DetectNodeCIDR        DetectMode = "NodeCIDR"
	DetectBridge          DetectMode = "BridgeInterface"
	DetectInterfacePrefix DetectMode = "InterfaceNamePrefix"
)

// taintToBeDeleted is put on a Node that the cluster autoscaler is about to
// delete (KEP-3458).
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// Settings are the parts of the configuration that go into a service.Node.
type Settings struct {
	NodeName        string
	NodeIPs         []netip.Addr // when given, they stand before the Node's own addresses
	DetectMode      DetectMode
	ClusterCIDRs    []netip.Prefix // for DetectClusterCIDR
	Bridge          string         // for DetectBridge
	InterfacePrefix string         // for DetectInterfacePrefix
	MasqueradeAll   bool
	NodePorts       service.NodePortAddresses
	// NodePortsPrimary adds the node's first address of each family to the
	// prefixes of NodePorts (keyword primary).
	NodePortsPrimary bool
}

// ConvertNode returns what Services need to know of the own Node; node is nil
// while it is not known.
func ConvertNode(s Settings, node *v1.Node) service.Node {
	out := service.Node{
		Name:          s.NodeName,
		IPs:           append([]netip.Addr(nil), s.NodeIPs...),
		MasqueradeAll: s.MasqueradeAll,
		NodePorts:     s.NodePorts,
	}
	var podCIDRs []netip.Prefix
	if node != nil {
		out.Zone = node.Labels[v1.LabelTopologyZone]
		out.Leaving = node.DeletionTimestamp != nil || slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
			return t.Key == taintToBeDeleted
		})
		out.IPs = append(out.IPs, nodeIPs(node)...)
		podCIDRs = ConvertPeer(node).PodCIDRs
	}
	if s.NodePortsPrimary {
		out.NodePorts.Prefixes = slices.Clip(out.NodePorts.Prefixes)
		for _, f := range []service.Family{service.IPv4, service.IPv6} {
			if ip, ok := out.IP(f); ok && !ip.IsLoopback() {
				out.NodePorts.Prefixes = append(out.NodePorts.Prefixes, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	switch s.DetectMode {
	case DetectNodeCIDR:
		out.Detector.CIDRs = podCIDRs
	case DetectBridge:
		out.Detector.Bridge = s.Bridge
	case DetectInterfacePrefix:
		out.Detector.InterfacePrefix = s.InterfacePrefix
	default:
		out.Detector.CIDRs = s.ClusterCIDRs
	}
	return out
}

// nodeIPs returns the InternalIPs, then the ExternalIPs, in their order.
func nodeIPs(node *v1.Node) []netip.Addr {
	var texts []string
	for _, kind := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				texts = append(texts, a.Address)
			}
		}
	}
	return addresses(texts)
}
