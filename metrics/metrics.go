package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"portolan/agent"
	"portolan/service"
)

// The modes whose metrics differ.
const (
	IPTables = "iptables"
	NFTables = "nftables"
)

// Options say what there is to count.
type Options struct {
	Mode            string
	Families        []service.Family
	Version, Commit string
	// Packets read the kernel's counters, by name of metric.
	Packets map[string]func() (uint64, error)
}

// Metrics counts. Its methods are safe for use by several goroutines.
type Metrics struct {
	registry *prometheus.Registry
	started  time.Time
	sync     syncMetrics
	own      ownMetrics
	flows    flowMetrics
	rules    *rules // nil unless the mode is iptables
	families []service.Family
	answers  map[string]*prometheus.CounterVec // by path

	mu      sync.Mutex
	written map[service.Family]*service.Snapshot
}

// New returns Metrics that have counted nothing.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), started: time.Now(), families: o.Families, written: map[service.Family]*service.Snapshot{}}
	m.sync = newSyncMetrics(m.registry, o.Mode)
	m.own = newOwnMetrics(m.registry, o)
	m.flows = newFlowMetrics(m.registry)
	if o.Mode == IPTables {
		m.rules = newRules(m.registry)
	}
	m.answers = map[string]*prometheus.CounterVec{
		"/healthz": counter(m.registry, kubeProxy("proxy_healthz_total", "Answers of /healthz."), "code"),
		"/livez":   counter(m.registry, kubeProxy("proxy_livez_total", "Answers of /livez."), "code"),
	}
	ofClient.register(m.registry)
	for name, read := range o.Packets {
		m.registry.MustRegister(packetCounter(name, read))
	}
	m.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	return m
}

// Watch has the metrics tell of the Services that an Agent knows. It is called
// once, before Handler answers.
func (m *Metrics) Watch(a *agent.Agent) {
	m.registry.MustRegister(&state{agent: a, families: m.families, tallies: map[service.Family]*tally{}})
}

// Queued notes that a change waits to be written.
func (m *Metrics) Queued(f service.Family) {
	m.sync.lastQueued.WithLabelValues(f.String()).SetToCurrentTime()
}

// Synced notes one attempt to write, as it ended.
func (m *Metrics) Synced(r agent.Result) {
	m.sync.note(r)
	if r.Err == nil {
		m.mu.Lock()
		before := m.written[r.Family]
		m.written[r.Family] = r.Snapshot
		m.mu.Unlock()
		for _, took := range programmed(before, r.Snapshot, m.started, time.Now()) {
			m.sync.programming.WithLabelValues(r.Family.String()).Observe(took.Seconds())
		}
	}
	m.own.note(r)
	if m.rules != nil {
		m.rules.wrote(r)
	}
}

// CleanupFailed notes that what is no longer wanted could not be removed.
func (m *Metrics) CleanupFailed(f service.Family) {
	if m.sync.cleanupFailures != nil {
		m.sync.cleanupFailures.WithLabelValues(f.String()).Inc()
	}
}

// CountAnswers counts the answers of /healthz and /livez by their code.
func (m *Metrics) CountAnswers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := m.answers[r.URL.Path]; c != nil {
			promhttp.InstrumentHandlerCounter(c, h).ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:    promhttp.ContinueOnError, // one counter less is better than none
		ProcessStartTime: m.started,
	})
}

func kubeProxy(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "kubeproxy", Name: name, Help: help}
}

func portolan(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: "portolan", Name: name, Help: help}
}

func counter(r *prometheus.Registry, o prometheus.Opts, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
	r.MustRegister(v)
	return v
}

// histogram has one series for each family.
func histogram(r *prometheus.Registry, o prometheus.Opts, buckets []float64) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: o.Namespace, Name: o.Name, Help: o.Help, Buckets: buckets}, []string{"ip_family"})
	r.MustRegister(v)
	return v
}

func gauge(r *prometheus.Registry, o prometheus.Opts, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts(o), labels)
	r.MustRegister(v)
	return v
}

// packets is a counter that the kernel keeps.
type packets struct {
	desc *prometheus.Desc
	read func() (uint64, error)
}

func packetCounter(name string, read func() (uint64, error)) prometheus.Collector {
	return packets{prometheus.NewDesc(name, "Packets, as the kernel counts them.", nil, nil), read}
}

// Describe tells of the one metric.
func (p packets) Describe(out chan<- *prometheus.Desc) { out <- p.desc }

// Collect leaves out what cannot be read: the kernel does not count it, or not yet.
func (p packets) Collect(out chan<- prometheus.Metric) {
	if n, err := p.read(); err == nil {
		out <- prometheus.MustNewConstMetric(p.desc, prometheus.CounterValue, float64(n))
	}
}
