// Package metrics counts what the proxy does, under kube-proxy 1.37's names,
// labels and buckets where it does the same thing, and under portolan_ else. The
// list is docs/metrics.md.
//
// Begin with metrics.go. What is told by the agent is in sync.go, programming.go and own.go;
// what is read when somebody asks is in state.go, rules.go, flows.go, loopback.go and
// dropped.go. server.go and pages.go are the pages beside /metrics.
package metrics
