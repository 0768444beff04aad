// Package apiserver follows the Services, EndpointSlices, ServiceCIDRs and the own
// Node of an API server.
//
// Nothing is told before every list is complete; only ServiceCIDRs may be missing,
// where the API server does not have them (before 1.33) or does not allow them. From
// then on what is known stays in force whatever happens to the connection: a watch that
// breaks goes on from where it was, a version that the server has forgotten is followed
// by a new list, and an API server that is gone is asked again and again.
//
// The objects are kept once, in the form of kube.Cluster and without what no proxy
// reads; they come into it one by one, as the API server streams them.
//
// source.go is the Source; resource.go lists and watches, store.go keeps, and trim.go drops
// what nobody reads. node.go decides when the first Snapshot is complete. trouble.go says
// what is wrong with the connection, and events.go writes Events. nodes.go and peers.go are
// for pod networks and for verify.
package apiserver
