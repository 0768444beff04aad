package metrics

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"portolan/agent"
)

// forPeople begins the pages that are for people and have no form to rely on.
const forPeople = "\nportolan %s\nFor people to read; programs find the same in /configz and /metrics.\n"

func flagz(flags []Flag) string {
	var b strings.Builder
	fmt.Fprintf(&b, forPeople, "flagz")
	for _, f := range flags {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}

// statusz has the form of component-base 1.37.
func statusz(version string, started time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, forPeople, "statusz")
	up := time.Since(started)
	fmt.Fprintf(&b, "\nStarted: %s\n", started.UTC().Format(time.UnixDate))
	fmt.Fprintf(&b, "Up: %d hr %02d min %02d sec\n", int(up.Hours()), int(up.Minutes())%60, int(up.Seconds())%60)
	fmt.Fprintf(&b, "Go version: %s\nBinary version: %s\n", runtime.Version(), version)
	fmt.Fprintf(&b, "Paths: /configz /debug/failures /flagz /healthz /metrics /metrics/slis /proxyMode\n")
	return b.String()
}

// failureList is what /debug/failures answers. Fields are added, never renamed.
type failureList struct {
	APIVersion string          `json:"apiVersion"`
	Failures   []agent.Failure `json:"failures"` // the last ones first
	// Forgotten counts those that made room for others.
	Forgotten int `json:"forgotten"`
}

func failures(j *agent.Journal) string {
	list, forgotten := j.Failures()
	body, err := json.Marshal(failureList{"portolan.io/v1", append([]agent.Failure{}, list...), forgotten})
	if err != nil {
		panic(fmt.Sprintf("metrics: failures: %v", err)) // our own types
	}
	return string(body)
}

// levels are the metrics at /metrics/slis, which every program of Kubernetes has
// about its /healthz. They are there once that was asked.
type levels struct {
	registry *prometheus.Registry
	check    *prometheus.GaugeVec
	checks   *prometheus.CounterVec
}

// newLevels registers what /metrics/slis answers with, as in component-base.
func newLevels(started time.Time) levels {
	r := prometheus.NewRegistry()
	kubernetes := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "kubernetes", Name: name, Help: help}
	}
	r.MustRegister(start(started))
	return levels{
		registry: r,
		check:    gauge(r, kubernetes("healthcheck", "1 when a check of /healthz succeeded last."), "name", "type"),
		checks:   counter(r, kubernetes("healthchecks_total", "Checks of /healthz."), "name", "status", "type"),
	}
}

func start(at time.Time) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "process_start_time_seconds", Help: "Start of the process, Unix time."})
	g.Set(float64(at.UnixMilli()) / 1000)
	return g
}

// answered counts one answer of /healthz.
func (l levels) answered() {
	l.check.WithLabelValues("ping", "healthz").Set(1)
	l.checks.WithLabelValues("ping", "success", "healthz").Inc()
}

func (l levels) handler() http.Handler {
	return promhttp.HandlerFor(l.registry, promhttp.HandlerOpts{})
}
