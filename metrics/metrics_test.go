package metrics

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"portolan/agent"
	"portolan/service"
)

// value returns the value of the series whose labels have all the given values.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	for _, m := range families[name].GetMetric() {
		all := true
		for _, want := range labels {
			found := false
			for _, l := range m.Label {
				found = found || l.GetValue() == want
			}
			all = all && found
		}
		if all {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

// TestValues: what happened is what is counted.
func TestValues(t *testing.T) {
	got := busy(t, IPTables)
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"kubeproxy_sync_proxy_rules_service_changes_total", nil, 4},
		{"kubeproxy_sync_proxy_rules_endpoint_changes_total", nil, 2},
		{"kubeproxy_sync_proxy_rules_service_changes_pending", nil, 0},
		{"kubeproxy_sync_proxy_rules_no_local_endpoints_total", []string{"internal", "IPv4"}, 1},
		{"kubeproxy_sync_proxy_rules_no_local_endpoints_total", []string{"external", "IPv6"}, 1},
		{"kubeproxy_sync_proxy_rules_iptables_total", []string{"nat", "IPv4"}, 1},
		{"kubeproxy_sync_proxy_rules_iptables_total", []string{"filter", "IPv4"}, 1},
		{"kubeproxy_sync_full_proxy_rules_duration_seconds", []string{"IPv6"}, 1},
		{"kubeproxy_sync_partial_proxy_rules_duration_seconds", []string{"IPv6"}, 1},
		{"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total", []string{"IPv4"}, 1},
		{"kubeproxy_network_programming_duration_seconds", []string{"IPv4"}, 1},
		{"kubeproxy_proxy_healthz_total", []string{"200"}, 1},
		{"kubeproxy_iptables_ct_state_invalid_dropped_packets_total", nil, 7},
		{"portolan_services", []string{"IPv4"}, 2},
		{"portolan_failed_services", []string{"IPv4"}, 1},
		{"portolan_service_blocked_frontends", []string{"web", "IPv4", "no_local_endpoints"}, 3},
		{"portolan_service_blocked_frontends", []string{"web", "IPv4", "source_range"}, 1},
		{"portolan_service_blocked_frontends", []string{"broken", "IPv6", "no_endpoints"}, 1},
		{"portolan_sync_failures_total", []string{"IPv4"}, 1},
		{"portolan_written_objects_total", []string{"IPv6", "deleted"}, 1},
	} {
		if v := value(got, tt.name, tt.labels...); v != tt.want {
			t.Errorf("%s %v: %v, not %v", tt.name, tt.labels, v, tt.want)
		}
	}
}

// TestProgrammed: only times that a write brought count, and none from before the
// start.
func TestProgrammed(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC) }
	with := func(times ...time.Time) *service.Snapshot {
		s := named("web")
		s.Triggers = times
		return (&service.Snapshot{}).With(service.Node{}, []*service.Service{s}, nil)
	}
	for _, tt := range []struct {
		name          string
		before, after *service.Snapshot
		want          int
	}{
		{"start", nil, with(at(1), at(2)), 0},
		{"start, one after it", nil, with(at(1), at(12)), 1},
		{"known", with(at(12)), with(at(12)), 0},
		{"one more", with(at(12)), with(at(12), at(13)), 1},
		{"a clock that is ahead", nil, with(at(99)), 0},
		{"gone", with(at(12)), (&service.Snapshot{}), 0},
	} {
		if got := programmed(tt.before, tt.after, at(10), at(20)); len(got) != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestPages: kube-proxy's paths, bodies and types; profiles only when asked for.
func TestPages(t *testing.T) {
	var failures agent.Journal
	failures.Note(time.Unix(10, 0), agent.News{Object: "ns/web", Family: service.IPv4, Reason: agent.ServiceRefused, Message: "no such match"})
	for _, profiling := range []bool{false, true} {
		mux, err := New(Options{Mode: NFTables}).NewMux(Pages{Mode: NFTables, Configz: map[string]any{"a": map[string]int{"b": 1}}, Profiling: profiling, Failures: &failures,
			Flags: []Flag{{"bind-address", "0.0.0.0"}, {"v", "2"}}, Version: "v1"})
		if err != nil {
			t.Fatal(err)
		}
		profile := 404
		if profiling {
			profile = 200
		}
		for _, tt := range []struct {
			path, contentType, body string
			code                    int
		}{
			{"/healthz", "text/plain", "ok", 200},
			{"/proxyMode", "text/plain", "nftables", 200},
			{"/configz", "application/json", `{"a":{"b":1}}`, 200},
			{"/flagz", "text/plain", "\nportolan flagz\nFor people to read; programs find the same in /configz and /metrics.\nbind-address: 0.0.0.0\nv: 2\n", 200},
			{"/statusz", "text/plain", "", 200},
			{"/debug/failures", "application/json", `{"apiVersion":"portolan.io/v1","failures":[{"object":"ns/web","family":"IPv4","reason":"ServiceRefused",` +
				`"message":"no such match","count":1,"first":"1970-01-01T00:00:10Z","last":"1970-01-01T00:00:10Z"}],"forgotten":0}`, 200},
			{"/metrics", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "", 200},
			{"/metrics/slis", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "", 200},
			{"/debug/pprof/", "text/", "", profile},
			{"/debug/pprof/cmdline", "text/", "", profile},
			{"/", "text/plain", "404 page not found\n", 404},
			{"/livez", "text/plain", "404 page not found\n", 404},
			{"/readyz", "text/plain", "404 page not found\n", 404},
		} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
			if w.Code != tt.code || !strings.HasPrefix(w.Header().Get("Content-Type"), tt.contentType) || tt.body != "" && w.Body.String() != tt.body {
				t.Errorf("profiling %t, %s: %d %v %.80q", profiling, tt.path, w.Code, w.Header(), w.Body)
			}
			if tt.path == "/metrics/slis" {
				for _, line := range []string{`kubernetes_healthcheck{name="ping",type="healthz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1`, "process_start_time_seconds "} {
					if !strings.Contains(w.Body.String(), "\n"+line) {
						t.Errorf("no %s in\n%s", line, w.Body)
					}
				}
			}
			if tt.path == "/statusz" && !strings.Contains(w.Body.String(), "Up: 0 hr 00 min") {
				t.Errorf("statusz: %s", w.Body)
			}
			if tt.path == "/metrics" && (w.Header().Get("Process-Start-Time-Unix") == "" || !strings.Contains(w.Body.String(), `portolan_proxy_mode{mode="nftables"} 1`)) {
				t.Errorf("%v", w.Header())
			}
		}
	}
	if _, err := New(Options{}).NewMux(Pages{Configz: map[string]any{"a": json.RawMessage("{")}}); err == nil {
		t.Error("what cannot be shown is shown")
	}
}

// TestVerbosity: with profiles the verbosity can be put, and nothing else.
func TestVerbosity(t *testing.T) {
	verbosity := 0
	verbose, err := New(Options{}).NewMux(Pages{Profiling: true, SetVerbosity: func(v int) error { verbosity = v; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int{http.MethodGet: 406, http.MethodPost: 406, http.MethodPut: 200} {
		w := httptest.NewRecorder()
		verbose.ServeHTTP(w, httptest.NewRequest(method, "/debug/flags/v", strings.NewReader("4")))
		if w.Code != want {
			t.Errorf("%s of the verbosity: %d %s", method, w.Code, w.Body)
		}
	}
	if verbosity != 4 {
		t.Errorf("the verbosity is %d", verbosity)
	}
	w := httptest.NewRecorder()
	verbose.ServeHTTP(w, httptest.NewRequest(http.MethodPut, "/debug/flags/v", strings.NewReader("much")))
	if w.Code != 400 || verbosity != 4 {
		t.Errorf("a verbosity that is no number: %d, and it is %d", w.Code, verbosity)
	}
}
