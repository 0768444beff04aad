package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan/service"
)

// loopback tells of the ports on which this process answers for NodePorts on
// loopback.
type loopback struct {
	families []service.Family
	count    func(service.Family) (listeners, failures int)
}

var (
	loopbackListeners = desc(kubeProxy("nftables_localhost_nodeport_listeners", "Ports on loopback on which NodePorts answer."), "ip_family")
	loopbackFailures  = desc(kubeProxy("nftables_localhost_nodeport_listener_creation_failures_total", "Tries to listen on loopback for a NodePort that failed."), "ip_family")
)

// CountLoopback has the metrics tell of listeners on loopback: how many are open in
// a family, and how many tries to open one have failed. It is called at most once,
// before Handler answers.
func (m *Metrics) CountLoopback(count func(service.Family) (listeners, failures int)) {
	m.registry.MustRegister(loopback{m.families, count})
}

// Describe tells of both metrics.
func (l loopback) Describe(out chan<- *prometheus.Desc) {
	out <- loopbackListeners
	out <- loopbackFailures
}

// Collect asks.
func (l loopback) Collect(out chan<- prometheus.Metric) {
	for _, f := range l.families {
		listeners, failures := l.count(f)
		out <- prometheus.MustNewConstMetric(loopbackListeners, prometheus.GaugeValue, float64(listeners), f.String())
		out <- prometheus.MustNewConstMetric(loopbackFailures, prometheus.CounterValue, float64(failures), f.String())
	}
}
