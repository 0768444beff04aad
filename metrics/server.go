package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"

	"portolan/agent"
)

// Pages are what the metrics server answers beside /metrics.
type Pages struct {
	Mode string // /proxyMode
	// Configz is shown at /configz as JSON: names of configurations to what they
	// are.
	Configz   map[string]any
	Profiling bool // /debug/pprof
	// Failures are shown at /debug/failures.
	Failures *agent.Journal
}

// NewMux returns the metrics server of kube-proxy: /metrics, /healthz, /proxyMode,
// /configz and, where that is asked for, /debug/pprof; and our own /debug/failures.
// Everything else is 404.
func (m *Metrics) NewMux(p Pages) (*http.ServeMux, error) {
	configz, err := json.Marshal(p.Configz)
	if err != nil {
		return nil, fmt.Errorf("metrics: configz: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", m.Handler())
	mux.HandleFunc("/healthz", text("text/plain; charset=utf-8", "ok"))
	mux.HandleFunc("/proxyMode", text("text/plain; charset=utf-8", p.Mode))
	mux.HandleFunc("/configz", text("application/json", string(configz)))
	mux.HandleFunc("/debug/failures", func(w http.ResponseWriter, _ *http.Request) { writeFailures(w, p.Failures) })
	if p.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux, nil
}

// failureList is what /debug/failures answers. Fields are added, never renamed.
type failureList struct {
	APIVersion string          `json:"apiVersion"`
	Failures   []agent.Failure `json:"failures"` // the last ones first
	// Forgotten counts those that made room for others.
	Forgotten int `json:"forgotten"`
}

func writeFailures(w http.ResponseWriter, j *agent.Journal) {
	list, forgotten := j.Failures()
	body, err := json.Marshal(failureList{"portolan.io/v1", append([]agent.Failure{}, list...), forgotten})
	if err != nil {
		panic(fmt.Sprintf("metrics: failures: %v", err)) // our own types
	}
	text("application/json", string(body))(w, nil)
}

func text(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = io.WriteString(w, body) // the client is gone if this fails
	}
}
