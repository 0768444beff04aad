package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"portolan/agent"
)

// syncMetrics are kube-proxy's about writing.
type syncMetrics struct {
	all, full, partial *prometheus.HistogramVec
	programming        *prometheus.HistogramVec
	last, lastQueued   *prometheus.GaugeVec
	// failures of iptables-restore, and those that were not of a full look; nil in
	// another mode
	restoreFailures, partialFailures *prometheus.CounterVec
	// failures of transactions and of removals that came later; nil in another mode
	tableFailures, cleanupFailures *prometheus.CounterVec
}

// newSyncMetrics defines those of the mode.
func newSyncMetrics(r *prometheus.Registry, mode string) syncMetrics {
	times := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return histogram(r, kubeProxy(name, help), buckets)
	}
	durations := prometheus.ExponentialBuckets(0.001, 2, 15)
	m := syncMetrics{
		all:         times("sync_proxy_rules_duration_seconds", "Time of one attempt to write what changed.", durations),
		full:        times("sync_full_proxy_rules_duration_seconds", "Time of one attempt that looked at the kernel in full.", durations),
		partial:     times("sync_partial_proxy_rules_duration_seconds", "Time of one attempt that wrote changes only.", durations),
		programming: times("network_programming_duration_seconds", "Time from a change of endpoints, as its EndpointSlice says, to its write.", programmingBuckets()),
		last:        gauge(r, kubeProxy("sync_proxy_rules_last_timestamp_seconds", "When the last write succeeded, Unix time."), "ip_family"),
		lastQueued:  gauge(r, kubeProxy("sync_proxy_rules_last_queued_timestamp_seconds", "When a change last began to wait, Unix time."), "ip_family"),
	}
	failures := func(name, help string) *prometheus.CounterVec { return counter(r, kubeProxy(name, help), "ip_family") }
	switch mode {
	case IPTables:
		m.restoreFailures = failures("sync_proxy_rules_iptables_restore_failures_total", "Attempts to write that failed.")
		m.partialFailures = failures("sync_proxy_rules_iptables_partial_restore_failures_total", "Attempts to write changes only that failed.")
	case NFTables:
		m.tableFailures = failures("sync_proxy_rules_nftables_sync_failures_total", "Attempts to write that failed.")
		m.cleanupFailures = failures("sync_proxy_rules_nftables_cleanup_failures_total", "Removals that failed.")
	}
	return m
}

// programmingBuckets are seconds: quarters, then ever wider.
func programmingBuckets() []float64 {
	out := []float64{0, 0.25, 0.5}
	for _, part := range []struct{ from, to, step float64 }{{1, 59, 1}, {60, 115, 5}, {120, 300, 30}} {
		for s := part.from; s <= part.to; s += part.step {
			out = append(out, s)
		}
	}
	return out
}

// note counts one attempt to write.
func (m syncMetrics) note(r agent.Result) {
	family := r.Family.String()
	took := r.Duration.Seconds()
	m.all.WithLabelValues(family).Observe(took)
	if r.Full {
		m.full.WithLabelValues(family).Observe(took)
	} else {
		m.partial.WithLabelValues(family).Observe(took)
	}
	if r.Err == nil {
		m.last.WithLabelValues(family).SetToCurrentTime()
		return
	}
	for failures, counts := range map[*prometheus.CounterVec]bool{m.restoreFailures: true, m.partialFailures: !r.Full, m.tableFailures: true} {
		if failures != nil && counts {
			failures.WithLabelValues(family).Inc()
		}
	}
}
