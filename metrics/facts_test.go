package metrics

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	client "k8s.io/client-go/tools/metrics"

	"portolan/agent"
	"portolan/dataplane"
	"portolan/service"
)

// missing are the metrics of kube-proxy 1.37.2 that are not there, each with the
// reason; docs/metrics.md has the same list.
var missing = map[string]string{
	"kubeproxy_nftables_localhost_nodeport_rejected_packets_total": "no rule rejects on loopback: where nobody listens the kernel does",
	"cardinality_enforcement_unexpected_categorizations_total":     "about component-base's registry, which is not used",
	"disabled_metrics_total":                                       "about component-base's registry, which is not used",
	"hidden_metrics_total":                                         "about component-base's registry, which is not used",
	"registered_metrics_total":                                     "about component-base's registry, which is not used",
	"kubernetes_build_info":                                        "this is no build of Kubernetes; portolan_build_info",
	"kubernetes_feature_enabled":                                   "gates change nothing here",
}

// TestNamesLabelsAndBuckets: what kube-proxy 1.37.2 was seen to show is shown under
// the same names, with the same labels and buckets, or listed as missing.
func TestNamesLabelsAndBuckets(t *testing.T) {
	docs, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]map[string]*dto.MetricFamily{}
	for _, mode := range []string{IPTables, NFTables} {
		got[mode] = busy(t, mode)
	}
	rows := 0
	for _, f := range readFacts(t) {
		rows++
		modes := []string{f.mode}
		if f.mode == "both" {
			modes = []string{IPTables, NFTables}
		}
		for _, mode := range modes {
			family := got[mode][f.name]
			switch reason := missing[f.name]; {
			case family == nil && reason == "":
				t.Errorf("%s: not there in mode %s", f.name, mode)
			case family != nil && reason != "":
				t.Errorf("%s: there in mode %s, though listed as missing", f.name, mode)
			case family != nil:
				f.compare(t, family)
			}
		}
		if !strings.Contains(string(docs), "`"+f.name+"`") {
			t.Errorf("%s: not in docs/metrics.md", f.name)
		}
	}
	for mode, families := range got {
		for name := range families {
			if strings.HasPrefix(name, "portolan_") && !strings.Contains(string(docs), "`"+name+"`") {
				t.Errorf("%s (mode %s): not in docs/metrics.md", name, mode)
			}
		}
	}
	if rows < 50 {
		t.Errorf("only %d facts were read", rows)
	}
}

// fact is one row of the recorded metrics.
type fact struct{ name, kind, labels, buckets, mode string }

func readFacts(t *testing.T) (out []fact) {
	t.Helper()
	file, err := os.Open("../testdata/kube-proxy-1.37.2/metrics.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for s := bufio.NewScanner(file); s.Scan(); {
		if c := strings.Split(s.Text(), "\t"); !strings.HasPrefix(c[0], "#") {
			out = append(out, fact{name: c[0], kind: c[1], labels: c[3], buckets: c[4], mode: c[5]})
		}
	}
	return out
}

// compare wants every label that was seen, with the values that were.
func (f fact) compare(t *testing.T, family *dto.MetricFamily) {
	t.Helper()
	if kind := strings.ToLower(family.GetType().String()); kind != f.kind {
		t.Errorf("%s: %s, not %s", f.name, kind, f.kind)
	}
	var want []string
	values := map[string][]string{}
	for pair := range strings.SplitSeq(f.labels, ";") {
		name, list, found := strings.Cut(pair, "=")
		if name != "" {
			want = append(want, name)
		}
		if found {
			values[name] = strings.Split(list, "|")
		}
	}
	for _, m := range family.Metric {
		var have []string
		for _, l := range m.Label {
			have = append(have, l.GetName())
			values[l.GetName()] = slices.DeleteFunc(values[l.GetName()], func(v string) bool { return v == l.GetValue() })
		}
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: labels %v, not %v", f.name, have, want)
		}
		if f.kind == "histogram" && buckets(m.Histogram) != f.buckets {
			t.Errorf("%s: buckets %s, not %s", f.name, buckets(m.Histogram), f.buckets)
		}
	}
	for name, list := range values {
		if len(list) > 0 {
			t.Errorf("%s: label %s is never %v", f.name, name, list)
		}
	}
}

func buckets(h *dto.Histogram) string {
	var out []string
	for _, b := range h.Bucket {
		out = append(out, fmt.Sprintf("%v", b.GetUpperBound()))
	}
	return strings.Join(append(out, "+Inf"), " ")
}

// fakeBackend writes a rule a Service into nat, and one into filter.
type fakeBackend struct{ *dataplane.Fake }

func (fakeBackend) Base(service.Node) []dataplane.Object {
	return []dataplane.Object{{Key: dataplane.Key{Container: "filter/KUBE-FORWARD", Name: "a"}, Body: "-A"}}
}

func (fakeBackend) Render(_ service.Node, s *service.Service) ([]dataplane.Object, error) {
	if s.Name.Name == "broken" {
		return nil, errors.New("broken")
	}
	return []dataplane.Object{{Key: dataplane.Key{Container: "nat/KUBE-SERVICES", Name: s.Name.Name}, Body: "-A"}}, nil
}

// busy returns the metrics of a proxy to which everything has happened.
func busy(t *testing.T, mode string) map[string]*dto.MetricFamily {
	t.Helper()
	var out map[string]*dto.MetricFamily
	synctest.Test(t, func(t *testing.T) {
		families := []service.Family{service.IPv4, service.IPv6}
		o := Options{Mode: mode, Families: families, Version: "v1", Commit: "c"}
		if mode == IPTables {
			o.Packets = map[string]func() (uint64, error){
				"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":     func() (uint64, error) { return 7, nil },
				"kubeproxy_iptables_localhost_nodeports_accepted_packets_total": func() (uint64, error) { return 8, nil },
				"kubeproxy_unknown_total":                                       func() (uint64, error) { return 0, os.ErrNotExist },
			}
		}
		m := New(o)
		if mode == NFTables {
			m.CountLoopback(func(service.Family) (int, int) { return 3, 1 })
		}
		var backends []agent.Family
		for _, f := range families {
			backends = append(backends, agent.Family{Family: f, Backend: fakeBackend{&dataplane.Fake{}}})
		}
		a := agent.New(m.CountRules(backends), agent.Options{MinSyncPeriod: time.Second, FullPeriod: time.Hour, RetryMin: time.Second, RetryMax: time.Minute,
			Log: slog.New(slog.DiscardHandler), Queued: m.Queued, Synced: m.Synced})
		m.Watch(a)
		m.WatchConnections(func() (int, int, error) { return 7, 100, nil })
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { a.Run(ctx); close(done) }()
		time.Sleep(time.Second)
		first := (&service.Snapshot{}).With(service.Node{Name: "node-1"}, []*service.Service{web(), named("broken"), named("plain")}, nil)
		a.Publish(first)
		time.Sleep(time.Minute)
		again := web()
		again.Triggers = append(again.Triggers, time.Now())
		a.Publish(first.With(first.Node, []*service.Service{again}, []service.Name{{Namespace: "default", Name: "plain"}}))
		time.Sleep(time.Minute)
		m.Synced(agent.Result{Family: service.IPv4, Err: errors.New("no lock"), Duration: time.Second})
		m.CleanupFailed(service.IPv4)
		m.Reconciled(service.IPv4, time.Second, 3)
		healthy := m.CountAnswers(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, path := range []string{"/healthz", "/livez", "/other"} {
			healthy.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
		}
		useClient()
		out = gather(t, m)
		stop()
		<-done
	})
	return out
}

// useClient does what client-go does.
func useClient() {
	ctx := context.Background()
	client.RequestLatency.Observe(ctx, "GET", url.URL{Host: "h"}, time.Second)
	client.RateLimiterLatency.Observe(ctx, "GET", url.URL{Host: "h"}, time.Second)
	client.RequestSize.Observe(ctx, "GET", "h", 1)
	client.ResponseSize.Observe(ctx, "GET", "h", 1)
	client.RequestResult.Increment(ctx, "200", "GET", "h")
	client.TransportCreateCalls.Increment("hit")
	client.TransportCacheEntries.Observe(1)
	client.TransportCertRotationGCCalls.Increment()
	client.ClientCertRotationAge.Observe(time.Second)
	soon := time.Now().Add(time.Minute)
	client.ClientCertExpiry.Set(&soon)
}

func gather(t *testing.T, m *Metrics) map[string]*dto.MetricFamily {
	t.Helper()
	list, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*dto.MetricFamily{}
	for _, f := range list {
		out[f.GetName()] = f
	}
	return out
}

func named(name string) *service.Service {
	return &service.Service{Name: service.Name{Namespace: "default", Name: name},
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")}, Ports: []service.Port{{Port: 80, Protocol: service.TCP}}}
}

// web is a Service of policy Local with its only endpoint on another node, and a
// load balancer with source ranges.
func web() *service.Service {
	s := named("web")
	s.ExternalPolicy, s.InternalPolicy = service.Local, service.Local
	s.LoadBalancerIPs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	s.Ports[0].NodePort = 30080
	s.Ports[0].Endpoints = []service.Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Ready: true, Serving: true, Node: "node-2"},
		{Addr: netip.MustParseAddrPort("[fd00:1::1]:80"), Ready: true, Serving: true, Node: "node-2"},
	}
	return s
}
