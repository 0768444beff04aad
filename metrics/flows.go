package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portolan/service"
)

// flowMetrics are kube-proxy's about connections that lead nowhere.
type flowMetrics struct {
	passes  *prometheus.HistogramVec
	removed *prometheus.CounterVec
}

func newFlowMetrics(r *prometheus.Registry) flowMetrics {
	return flowMetrics{
		passes:  histogram(r, kubeProxy("conntrack_reconciler_sync_duration_seconds", "Time of one look for connections that lead nowhere."), prometheus.ExponentialBuckets(0.001, 2, 15)),
		removed: counter(r, kubeProxy("conntrack_reconciler_deleted_entries_total", "Connections that led nowhere and were removed."), "ip_family"),
	}
}

// connections tells how full the kernel's table of connections is when somebody asks.
type connections struct {
	read func() (entries, most int, err error)
}

var (
	connectionEntries = desc(portolan("conntrack_entries", "Connections that the kernel tracks in this network namespace."))
	connectionsMost   = desc(portolan("conntrack_entries_max", "Connections that the kernel may track; packets of more are dropped."))
)

// Describe tells of both metrics.
func (c connections) Describe(out chan<- *prometheus.Desc) {
	out <- connectionEntries
	out <- connectionsMost
}

// Collect leaves out what cannot be read: the kernel tracks no connections yet.
func (c connections) Collect(out chan<- prometheus.Metric) {
	if entries, most, err := c.read(); err == nil {
		out <- prometheus.MustNewConstMetric(connectionEntries, prometheus.GaugeValue, float64(entries))
		out <- prometheus.MustNewConstMetric(connectionsMost, prometheus.GaugeValue, float64(most))
	}
}

// WatchConnections has the metrics tell how full the kernel's table of connections
// is. It is called once, before Handler answers.
func (m *Metrics) WatchConnections(read func() (entries, most int, err error)) {
	m.registry.MustRegister(connections{read})
}

// Reconciled notes one look for connections that lead nowhere, as it ended.
func (m *Metrics) Reconciled(f service.Family, took time.Duration, removed int) {
	m.flows.passes.WithLabelValues(f.String()).Observe(took.Seconds())
	m.flows.removed.WithLabelValues(f.String()).Add(float64(removed))
}
