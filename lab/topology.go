package lab

import (
	"fmt"
	"net/netip"
)

// Topology says what to build. The zero value of a part means "none of it".
type Topology struct {
	Nodes  []NodeSpec
	Pods   []PodSpec
	Client []netip.Addr // of the outside client, the preferred of each family first
	Routes []RouteSpec  // what the client sends to a node; the longest prefix wins
	// PodNetwork leaves it to programs on the nodes how packets get to pods of
	// other nodes; without it nodes have plain routes to each other's pods.
	PodNetwork bool
	PodMTU     int // of pods' interfaces, bytes; 0 for the usual 1500
	// SCTP has pods answer by that protocol too; see HasSCTP.
	SCTP bool
}

// NodeSpec is one node: its addresses on the switch and its pod networks, at most
// one a family. The first address of a pod network is the bridge's.
type NodeSpec struct {
	Name  string
	Addrs []netip.Addr
	Pods  []netip.Prefix
}

// PodSpec is one pod: on which node, its addresses (at most one a family, inside
// the node's pod networks) and the ports on which it answers TCP and UDP.
type PodSpec struct {
	Name  string
	Node  string
	Addrs []netip.Addr
	Ports []uint16
}

// RouteSpec is a network that the client reaches through a node.
type RouteSpec struct {
	To   netip.Prefix
	Node string
}

// The networks of a lab. Nodes and the client share the switch networks; Service
// networks are what a cluster would hand out to ClusterIPs, load balancers and
// external IPs. All are documentation or private ranges.
var (
	SwitchNetworks  = prefixes("192.0.2.0/24", "2001:db8::/64")
	PodNetworks     = prefixes("10.244.0.0/16", "fd00:244::/32")
	ServiceNetworks = prefixes("10.96.0.0/16", "fd00:96::/112")
	VIPNetworks     = prefixes("198.51.100.0/24", "203.0.113.0/24", "2001:db8:198::/64", "2001:db8:203::/64")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// NumberedNode is the node of number i, from 1 to 89: node1 has 192.0.2.11,
// 2001:db8::11 and the pod networks 10.244.1.0/24 and fd00:244:1::/64.
func NumberedNode(i int) NodeSpec {
	return NodeSpec{
		Name:  fmt.Sprintf("node%d", i),
		Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+i)), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 10+i))},
		Pods:  prefixes(fmt.Sprintf("10.244.%d.0/24", i), fmt.Sprintf("fd00:244:%d::/64", i)),
	}
}

// NumberedPod is pod number j (1 to 99) of node number i: 10.244.i.(10+j) and
// fd00:244:i::(10+j).
func NumberedPod(name string, i, j int, ports ...uint16) PodSpec {
	return PodSpec{
		Name: name,
		Node: fmt.Sprintf("node%d", i),
		Addrs: []netip.Addr{
			netip.MustParseAddr(fmt.Sprintf("10.244.%d.%d", i, 10+j)),
			netip.MustParseAddr(fmt.Sprintf("fd00:244:%d::%d", i, 10+j)),
		},
		Ports: ports,
	}
}

// GatewayAddrs are those of the way out of the lab: nodes send there what no route
// and no rule of theirs is for.
var GatewayAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.254"), netip.MustParseAddr("2001:db8::fe")}

// ClientAddrs are the addresses of the outside client unless a topology has others.
var ClientAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.200"), netip.MustParseAddr("2001:db8::200")}

// Numbered is a topology of numbered nodes with the same number of pods each, named
// pod-NODE-POD; the client reaches all Service networks through node1.
func Numbered(nodes, podsPerNode int, ports ...uint16) Topology {
	t := Topology{Client: ClientAddrs}
	for i := 1; i <= nodes; i++ {
		t.Nodes = append(t.Nodes, NumberedNode(i))
		for j := 1; j <= podsPerNode; j++ {
			t.Pods = append(t.Pods, NumberedPod(fmt.Sprintf("pod-%d-%d", i, j), i, j, ports...))
		}
	}
	t.Routes = RoutesVia("node1")
	return t
}

// RoutesVia routes all Service networks through one node.
func RoutesVia(node string) []RouteSpec {
	var routes []RouteSpec
	for _, to := range append(append([]netip.Prefix(nil), ServiceNetworks...), VIPNetworks...) {
		routes = append(routes, RouteSpec{To: to, Node: node})
	}
	return routes
}

// bridgeAddr is the address of the pod bridge in a pod network.
func bridgeAddr(pods netip.Prefix) netip.Addr { return pods.Masked().Addr().Next() }

// ofFamily gives the first address of the family of like; the zero Addr if none.
func ofFamily(addrs []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// switchNetwork is the switch network of the family of like.
func switchNetwork(like netip.Addr) netip.Prefix {
	for _, p := range SwitchNetworks {
		if p.Addr().Is4() == like.Is4() {
			return p
		}
	}
	panic(fmt.Sprintf("lab: no switch network for %v", like))
}
