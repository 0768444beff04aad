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

// Reconciled notes one look for connections that lead nowhere, as it ended.
func (m *Metrics) Reconciled(f service.Family, took time.Duration, removed int) {
	m.flows.passes.WithLabelValues(f.String()).Observe(took.Seconds())
	m.flows.removed.WithLabelValues(f.String()).Add(float64(removed))
}
