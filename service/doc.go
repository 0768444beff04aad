// Package service is the model: what the cluster asks of this node, and what
// this node answers.
//
// A Snapshot holds every Service with its endpoints and the Node as they were
// at one moment. Decide and Frontends turn one Service into the addresses that
// this node answers for, each with a Route for every class of client. Traffic
// policy, readiness, terminating fallback, topology hints, source ranges and
// masquerade are decided here, once; backends only write the answer down.
//
// The package is pure: values in, values out, no clock, no log, no context.
// The rules come from kube-proxy 1.37 (topology, service and endpoint
// semantics), KEP-1669 (terminating endpoints), KEP-2086 (internal traffic
// policy), KEP-2433 (topology hints) and KEP-1860 (ipMode).
//
// Begin with service.go and snapshot.go: what is known. choose.go decides which endpoints a
// port uses on this node (node.go), shares.go how connections are spread over them, and
// frontend.go who is let through to them at which address. dropped.go is what backends count.
package service
