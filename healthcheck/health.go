package healthcheck

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"portolan/service"
)

// Health knows for each IP family whether changes get written in time. Its
// answers are kube-proxy's, with one difference: /healthz is 503 until every
// family has been written once, since before that no Service works here.
type Health struct {
	timeout time.Duration
	now     func() time.Time

	mu       sync.Mutex
	families map[service.Family]*familyHealth
	eligible bool
	pending  func(service.Family) Pending
	more     []func() []Condition
}

// familyHealth is what is known of the writes of one family.
type familyHealth struct {
	updated time.Time // end of the last write; zero before the first
	queued  time.Time // oldest change that was not written yet; zero for none

	failing     time.Time // since when no attempt succeeded; zero if the last one did
	err         error     // of the last attempt
	failed      map[string]error
	failedSince time.Time // when the first of failed came; zero for none
}

// NewHealth returns a Health for the families. A change that waits longer than
// timeout to be written makes its family unhealthy.
func NewHealth(timeout time.Duration, families []service.Family) *Health {
	h := &Health{timeout: timeout, now: time.Now, families: map[service.Family]*familyHealth{}, eligible: true,
		pending: func(service.Family) Pending { return Pending{} }}
	for _, f := range families {
		h.families[f] = &familyHealth{}
	}
	return h
}

// Queued notes that a change waits to be written.
func (h *Health) Queued(f service.Family) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s := h.families[f]; s != nil && s.queued.IsZero() {
		s.queued = h.now()
	}
}

// Updated notes that everything known was written.
func (h *Health) Updated(f service.Family) { h.Attempted(f, Attempt{}) }

// SetEligible says whether load balancers should send traffic to this Node: not
// when it is being deleted.
func (h *Health) SetEligible(eligible bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eligible = eligible
}

// Alive tells whether no family is stuck.
func (h *Health) Alive() bool { return h.status().Healthy }

// report is kube-proxy's answer to /healthz and /livez.
type report struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyReport `json:"status"`

	synced bool
}

type familyReport struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// status is what /healthz and /livez go by, as kube-proxy 1.37 reports it.
func (h *Health) status() report {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now() // not in UTC: that would count by the clock on the wall, which jumps
	eligible := h.eligible
	r := report{CurrentTime: now.UTC(), NodeEligible: &eligible, Healthy: true, synced: true, Status: map[string]familyReport{}}
	for f, s := range h.families {
		healthy := s.queued.IsZero() || now.Sub(s.queued) < h.timeout
		r.Healthy = r.Healthy && healthy
		if s.updated.IsZero() {
			r.synced = false
			continue
		}
		r.Status[f.String()] = familyReport{LastUpdated: s.updated.UTC(), Healthy: healthy}
		if s.updated.After(r.LastUpdated) {
			r.LastUpdated = s.updated.UTC()
		}
	}
	return r
}

// Handler answers /healthz and /livez, with ?verbose the conditions too;
// everything else is 404.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		s := h.status()
		h.write(w, r, s, s.Healthy && s.synced && *s.NodeEligible)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, r *http.Request) {
		s := h.status()
		s.NodeEligible = nil
		h.write(w, r, s, s.Healthy)
	})
	return mux
}

// write answers in kube-proxy's form, with the conditions where they are asked for.
func (h *Health) write(w http.ResponseWriter, r *http.Request, s report, ok bool) {
	code := http.StatusServiceUnavailable
	if ok {
		code = http.StatusOK
		s.LastUpdated = h.now().UTC() // later than CurrentTime, as in kube-proxy
	}
	var body any = s
	if r.URL.Query().Has("verbose") {
		body = verboseReport{s, h.Conditions()}
	}
	writeJSON(w, code, body, "")
}

// writeJSON answers as kube-proxy does: no line end behind the body.
func writeJSON(w http.ResponseWriter, code int, body any, indent string) {
	text, err := json.Marshal(body)
	if indent != "" {
		text, err = json.MarshalIndent(body, "", indent)
	}
	if err != nil {
		panic(fmt.Sprintf("healthcheck: %T: %v", body, err)) // our own types
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client is gone if this fails
}
