package metrics

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"portolan/agent"
	"portolan/dataplane"
)

// ownMetrics are those that kube-proxy does not have.
type ownMetrics struct {
	attempts, failures, lines *prometheus.CounterVec
	repairs, damage           *prometheus.CounterVec
	failed, conflicts, drift  *prometheus.GaugeVec
}

// newOwnMetrics registers what kube-proxy does not have; docs/metrics.md lists it.
func newOwnMetrics(r *prometheus.Registry, o Options) ownMetrics {
	gauge(r, portolan("build_info", "1, with what this program is."), "version", "commit", "go_version").
		WithLabelValues(o.Version, o.Commit, runtime.Version()).Set(1)
	gauge(r, portolan("proxy_mode", "1, with the proxy mode."), "mode").WithLabelValues(o.Mode).Set(1)
	m := ownMetrics{
		attempts:  counter(r, portolan("sync_attempts_total", "Attempts to write, by whether they looked at the kernel in full."), "ip_family", "full"),
		failures:  counter(r, portolan("sync_failures_total", "Attempts to write that failed, in any mode."), "ip_family"),
		lines:     counter(r, portolan("written_objects_total", "Rules, set elements and the like that were written."), "ip_family", "change"),
		repairs:   counter(r, portolan("repairs_total", "Times that others were found to have changed our rules."), "ip_family"),
		damage:    counter(r, portolan("damaged_objects_total", "Rules, set elements and the like of ours that others took away, or that they added."), "ip_family", "damage"),
		failed:    gauge(r, portolan("failed_services", "Services that are not programmed as they ask."), "ip_family"),
		drift:     gauge(r, portolan("drift_objects", "Rules, set elements and the like that others took away or added, and that are not put right yet."), "ip_family", "code"),
		conflicts: gauge(r, portolan("address_conflicts", "Rules that a Service asks for and an older Service has."), "ip_family"),
	}
	for _, f := range o.Families { // zero is an answer too
		for _, full := range []string{"true", "false"} {
			m.attempts.WithLabelValues(f.String(), full)
		}
		for _, change := range []string{"created", "replaced", "deleted"} {
			m.lines.WithLabelValues(f.String(), change)
		}
		for _, damage := range []string{"missing", "foreign"} {
			m.damage.WithLabelValues(f.String(), damage)
		}
		m.setDrift(f.String(), dataplane.Damage{})
		m.repairs.WithLabelValues(f.String())
		m.failures.WithLabelValues(f.String())
		m.failed.WithLabelValues(f.String())
		m.conflicts.WithLabelValues(f.String())
	}
	return m
}

// note counts one attempt to write.
func (m ownMetrics) note(r agent.Result) {
	family := r.Family.String()
	full := "false"
	if r.Full {
		full = "true"
	}
	m.attempts.WithLabelValues(family, full).Inc()
	m.conflicts.WithLabelValues(family).Add(float64(len(r.Report.Lost) - len(r.Report.Settled)))
	m.lines.WithLabelValues(family, "created").Add(float64(r.Report.Created))
	m.lines.WithLabelValues(family, "replaced").Add(float64(r.Report.Replaced))
	m.lines.WithLabelValues(family, "deleted").Add(float64(r.Report.Deleted))
	if d := r.Report.Damage; !d.None() {
		m.repairs.WithLabelValues(family).Inc()
		m.damage.WithLabelValues(family, "missing").Add(float64(d.Missing))
		m.damage.WithLabelValues(family, "foreign").Add(float64(d.Foreign))
	}
	if r.Err != nil {
		m.failures.WithLabelValues(family).Inc()
		if !r.Report.Damage.None() {
			m.setDrift(family, r.Report.Damage)
		}
		return
	}
	m.setDrift(family, dataplane.Damage{})
	m.failed.WithLabelValues(family).Set(float64(len(r.Refused)))
}

// setDrift tells what is not put right, by the codes that a verification has for it.
func (m ownMetrics) setDrift(family string, d dataplane.Damage) {
	m.drift.WithLabelValues(family, agent.DriftMissing).Set(float64(d.Missing))
	m.drift.WithLabelValues(family, agent.DriftForeign).Set(float64(d.Foreign))
}
