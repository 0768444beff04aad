// Package podnet decides what one node needs so that pods of different nodes
// reach each other: over vxlan, or by plain routes (host-gw). It does what
// flannel does with the Kubernetes subnet manager, from the same net-conf.json
// and the same Node annotations, so that it can join or replace a flannel
// network.
//
// It is pure: a Config, what is known of this node and the Nodes of the cluster
// go in; a Topology, and from it the objects that the kernel should hold, come
// out. podnet/linux observes and writes them.
//
// Begin with topology.go; config.go and annotations.go are what goes in. vxlan.go and
// hostgw.go render a Topology into the objects of object.go, and rules.go has the rules.
package podnet
