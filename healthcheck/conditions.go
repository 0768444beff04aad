package healthcheck

import (
	"fmt"
	"slices"
	"time"

	"portolan/service"
)

// Attempt is how one attempt to write a family went.
type Attempt struct {
	// Err says why nothing may be concluded about what was written.
	Err error
	// Failed are the Services that are not programmed as they ask, by
	// namespace/name.
	Failed map[string]error
}

// Pending counts what waits to be written: Services that changed, and Services
// whose endpoints did.
type Pending struct {
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`
}

// TellPending has the conditions say how much waits; pending must be safe for use
// by several goroutines. It is called before the Health is used.
func (h *Health) TellPending(pending func(service.Family) Pending) { h.pending = pending }

// Attempted notes how an attempt to write went. After one without an error nothing
// waits, but what came meanwhile.
func (h *Health) Attempted(f service.Family, a Attempt) {
	waiting := h.pending(f) != Pending{}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.families[f]
	if s == nil {
		return
	}
	now := h.now()
	s.err = a.Err
	if a.Err != nil {
		if s.failing.IsZero() {
			s.failing = now
		}
		return
	}
	s.updated, s.queued, s.failing = now, time.Time{}, time.Time{}
	if waiting {
		s.queued = now
	}
	s.failed = a.Failed
	switch {
	case len(a.Failed) == 0:
		s.failedSince = time.Time{}
	case s.failedSince.IsZero():
		s.failedSince = now
	}
}

// The types of Condition.
const (
	RulesWritten       = "RulesWritten"       // the last attempt to write succeeded
	ServicesProgrammed = "ServicesProgrammed" // every Service is programmed as it asks
	NothingPending     = "NothingPending"     // no change waits to be written
	RulesIntact        = "RulesIntact"        // what others did to the rules is put right
	APIServerHeard     = "APIServerHeard"     // the API server tells of everything that the proxy follows
	ManifestsRead      = "ManifestsRead"      // no document of the manifests is refused
	LoopbackAnswers    = "LoopbackAnswers"    // this process listens for NodePorts on loopback, where it should
)

// Condition is one thing about one family that is as it should be (Status True)
// or is not. Fields are added, never renamed.
type Condition struct {
	Type    string `json:"type"`
	Family  string `json:"family,omitempty"` // IPv4 or IPv6; none where it is about both
	Status  string `json:"status"`           // True or False
	Message string `json:"message"`
	// Since is when it began to be False.
	Since *time.Time `json:"since,omitempty"`
	// LastSuccess is the end of the last write (RulesWritten), or when the resource that
	// was silent longest was heard of (APIServerHeard).
	LastSuccess *time.Time `json:"lastSuccess,omitempty"`
	// Services are those that are not programmed as they ask, each with the reason
	// (ServicesProgrammed), or the Service ports that do not answer (LoopbackAnswers).
	Services map[string]string `json:"services,omitempty"`
	Pending  *Pending          `json:"pending,omitempty"` // NothingPending
}

type verboseReport struct {
	report
	Conditions []Condition `json:"conditions"`
}

// TellMore adds conditions that others know of; they change no answer but the
// verbose one. It is called before the Health is used; more must be safe for use by
// several goroutines.
func (h *Health) TellMore(more func() []Condition) { h.more = append(h.more, more) }

// Conditions returns three conditions a family, then those of TellMore.
func (h *Health) Conditions() []Condition {
	h.mu.Lock()
	families := make([]service.Family, 0, len(h.families))
	for f := range h.families {
		families = append(families, f)
	}
	h.mu.Unlock()
	slices.Sort(families)
	var out []Condition
	for _, f := range families {
		pending := h.pending(f)
		h.mu.Lock()
		s := *h.families[f]
		h.mu.Unlock()
		out = append(out, s.rulesWritten(), s.servicesProgrammed(), s.nothingPending(pending))
		for i := range 3 {
			out[len(out)-1-i].Family = f.String()
		}
	}
	for _, more := range h.more {
		out = append(out, more()...)
	}
	return out
}

func condition(kind string, ok bool, since time.Time, format string, args ...any) Condition {
	c := Condition{Type: kind, Status: "True", Message: fmt.Sprintf(format, args...)}
	if !ok {
		c.Status, c.Since = "False", timeOrNil(since)
	}
	return c
}

// rulesWritten is about the last attempt to write.
func (s familyHealth) rulesWritten() Condition {
	var c Condition
	switch {
	case s.err != nil:
		c = condition(RulesWritten, false, s.failing, "the last attempt failed: %v", s.err)
	case s.updated.IsZero():
		c = condition(RulesWritten, false, time.Time{}, "nothing was written yet")
	default:
		c = condition(RulesWritten, true, time.Time{}, "the last attempt succeeded")
	}
	c.LastSuccess = timeOrNil(s.updated)
	return c
}

// servicesProgrammed names the Services that are not, each with the reason.
func (s familyHealth) servicesProgrammed() Condition {
	switch {
	case len(s.failed) > 0:
		c := condition(ServicesProgrammed, false, s.failedSince, "%d Services are not programmed as they ask", len(s.failed))
		c.Services = map[string]string{}
		for name, err := range s.failed {
			c.Services[name] = err.Error()
		}
		return c
	case s.updated.IsZero():
		return condition(ServicesProgrammed, false, time.Time{}, "nothing was written yet")
	}
	return condition(ServicesProgrammed, true, time.Time{}, "every Service is programmed as it asks")
}

func (s familyHealth) nothingPending(p Pending) Condition {
	c := condition(NothingPending, s.queued.IsZero() && p == Pending{}, s.queued, "%d Services and the endpoints of %d wait to be written", p.Services, p.Endpoints)
	c.Pending = &p
	return c
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
