package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"

	"portolan/agent"
)

// Pages are what the metrics server answers beside /metrics.
type Pages struct {
	Mode string // /proxyMode
	// Configz is shown at /configz as JSON: names of configurations to what they
	// are.
	Configz map[string]any
	Flags   []Flag // /flagz, sorted by name
	Version string // /statusz
	// Profiling adds /debug/pprof and /debug/flags/v, which sets how much the log says.
	Profiling    bool
	SetVerbosity func(int) error
	// Failures are shown at /debug/failures.
	Failures *agent.Journal
}

// Flag is a flag of the command line and its value.
type Flag struct{ Name, Value string }

// NewMux returns the metrics server of kube-proxy: /metrics, /metrics/slis, /healthz,
// /proxyMode, /configz, /flagz, /statusz and, where that is asked for, /debug/pprof and
// /debug/flags/v; and our own /debug/failures. Everything else is 404.
func (m *Metrics) NewMux(p Pages) (*http.ServeMux, error) {
	configz, err := json.Marshal(p.Configz)
	if err != nil {
		return nil, fmt.Errorf("metrics: configz: %w", err)
	}
	levels := newLevels(m.started)
	mux := http.NewServeMux()
	mux.Handle("/metrics", m.Handler())
	mux.Handle("/metrics/slis", levels.handler())
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		levels.answered()
		write(w, plainText, "ok")
	})
	mux.HandleFunc("/proxyMode", page(plainText, p.Mode))
	mux.HandleFunc("/configz", page(jsonType, string(configz)))
	mux.HandleFunc("/flagz", page(plainText, flagz(p.Flags)))
	mux.HandleFunc("/statusz", func(w http.ResponseWriter, _ *http.Request) { write(w, plainText, statusz(p.Version, m.started)) })
	mux.HandleFunc("/debug/failures", func(w http.ResponseWriter, _ *http.Request) { write(w, jsonType, failures(p.Failures)) })
	if p.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/flags/v", verbosity(p.SetVerbosity))
	}
	return mux, nil
}

const (
	plainText = "text/plain; charset=utf-8"
	jsonType  = "application/json"
)

// page answers with what does not change.
func page(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { write(w, contentType, body) }
}

func write(w http.ResponseWriter, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, body) // the client is gone if this fails
}

// verbosity takes a number with PUT.
func verbosity(set func(int) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPut {
			http.Error(w, "only PUT is answered, with a number as the body", http.StatusNotAcceptable)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 100))
		level := 0
		if err == nil {
			level, err = strconv.Atoi(string(body))
		}
		if err == nil {
			err = set(level)
		}
		if err != nil {
			http.Error(w, fmt.Sprintf("v takes a number: %v", err), http.StatusBadRequest)
			return
		}
		write(w, plainText, fmt.Sprintf("v is %d", level))
	}
}
