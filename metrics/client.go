package metrics

import (
	"context"
	"math"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	client "k8s.io/client-go/tools/metrics"
)

// clientMetrics are client-go's about the API server. client-go takes one set for
// the life of a process, so this is the one.
type clientMetrics struct {
	requests, transports             *prometheus.CounterVec
	latency, limiter, sent, received *prometheus.HistogramVec
	rotation                         prometheus.Histogram
	cached                           prometheus.Gauge
	gone                             prometheus.Counter
	expiry                           atomic.Pointer[time.Time]
	ttl                              prometheus.GaugeFunc
}

var ofClient = newClientMetrics()

// newClientMetrics has the names, labels and buckets of component-base's rest_client
// metrics.
func newClientMetrics() *clientMetrics {
	name := func(n, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "rest_client", Name: n, Help: help}
	}
	byVerb := func(o prometheus.Opts, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: o.Namespace, Name: o.Name, Help: o.Help, Buckets: buckets}, []string{"verb", "host"})
	}
	byLabels := func(o prometheus.Opts, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
	}
	seconds := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}
	const minute, hour, day = 60, 3600, 24 * 3600
	c := &clientMetrics{
		requests:   byLabels(name("requests_total", "Answers of the API server."), "code", "method", "host"),
		transports: byLabels(name("transport_create_calls_total", "Transports that were asked for, by whether the cache had one."), "result"),
		latency:    byVerb(name("request_duration_seconds", "Time of requests to the API server."), seconds),
		limiter:    byVerb(name("rate_limiter_duration_seconds", "Time that requests waited for --kube-api-qps."), seconds),
		sent:       byVerb(name("request_size_bytes", "Size of requests to the API server."), bytes),
		received:   byVerb(name("response_size_bytes", "Size of answers of the API server."), bytes),
		rotation: prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "rest_client", Name: "exec_plugin_certificate_rotation_age",
			Help:    "Age of client certificates when they were replaced, in seconds.",
			Buckets: []float64{10 * minute, 30 * minute, hour, 4 * hour, day, 7 * day, 30 * day, 90 * day, 180 * day, 360 * day, 4 * 360 * day}}),
		cached: prometheus.NewGauge(prometheus.GaugeOpts(name("transport_cache_entries", "Transports that are kept."))),
		gone:   prometheus.NewCounter(prometheus.CounterOpts(name("transport_cert_rotation_gc_calls_total", "Rotations of certificates that ended with their transport."))),
	}
	c.ttl = prometheus.NewGaugeFunc(prometheus.GaugeOpts(name("exec_plugin_ttl_seconds", "Time until the client certificate expires; +Inf without one.")), c.untilExpiry)
	c.hand()
	return c
}

// hand gives the metrics to client-go.
func (c *clientMetrics) hand() {
	client.Register(client.RegisterOpts{
		ClientCertExpiry:             expirySet{c},
		ClientCertRotationAge:        observe(func(d time.Duration) { c.rotation.Observe(d.Seconds()) }),
		RequestLatency:               observeLatency{c.latency},
		RateLimiterLatency:           observeLatency{c.limiter},
		RequestSize:                  observeSize{c.sent},
		ResponseSize:                 observeSize{c.received},
		RequestResult:                countResult{c.requests},
		TransportCacheEntries:        setEntries{c.cached},
		TransportCreateCalls:         countCreation{c.transports},
		TransportCertRotationGCCalls: countGone{c.gone},
	})
}

func (c *clientMetrics) register(r *prometheus.Registry) {
	r.MustRegister(c.requests, c.transports, c.latency, c.limiter, c.sent, c.received, c.rotation, c.cached, c.gone, c.ttl)
}

func (c *clientMetrics) untilExpiry() float64 {
	if t := c.expiry.Load(); t != nil {
		return time.Until(*t).Seconds()
	}
	return math.Inf(1)
}

// The adapters that client-go calls.
type (
	expirySet      struct{ c *clientMetrics }
	observe        func(time.Duration)
	observeLatency struct{ v *prometheus.HistogramVec }
	observeSize    struct{ v *prometheus.HistogramVec }
	countResult    struct{ v *prometheus.CounterVec }
	setEntries     struct{ g prometheus.Gauge }
	countCreation  struct{ v *prometheus.CounterVec }
	countGone      struct{ c prometheus.Counter }
)

func (e expirySet) Set(t *time.Time) { e.c.expiry.Store(t) }

func (o observe) Observe(d time.Duration) { o(d) }

func (o observeLatency) Observe(_ context.Context, verb string, u url.URL, d time.Duration) {
	o.v.WithLabelValues(verb, u.Host).Observe(d.Seconds())
}

func (o observeSize) Observe(_ context.Context, verb, host string, size float64) {
	o.v.WithLabelValues(verb, host).Observe(size)
}

func (c countResult) Increment(_ context.Context, code, method, host string) {
	c.v.WithLabelValues(code, method, host).Inc()
}

func (s setEntries) Observe(n int) { s.g.Set(float64(n)) }

func (c countCreation) Increment(result string) { c.v.WithLabelValues(result).Inc() }

func (c countGone) Increment() { c.c.Inc() }
