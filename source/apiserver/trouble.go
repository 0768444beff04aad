package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// repeat is how often a trouble that lasts is told again.
const repeat = time.Minute

// trouble tells the log when the API server does not answer for a resource, and
// when it does again.
type trouble struct {
	log      *slog.Logger
	resource resource

	mu      sync.Mutex
	verbs   map[string]*failing // by verb
	missing bool                // it was told, of a resource that the proxy can do without
	heard   time.Time
}

// failing is a request that fails: since when, and what people were told of it last.
type failing struct {
	since, told time.Time
	text        string
}

func newTrouble(log *slog.Logger, r resource) *trouble {
	return &trouble{log: log.With("resource", r.name), resource: r, verbs: map[string]*failing{}}
}

// report takes the outcome of a request, or with the verb "event" that something came
// by a watch.
func (t *trouble) report(verb string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if err == nil || ordinary(err) {
		t.heard = now
	}
	f := t.verbs[verb]
	switch {
	case err == nil:
		t.recovered(verb, now)
	case ordinary(err):
	case t.resource.without != "" && absent(err):
		if !t.missing {
			t.missing = true
			t.log.Warn("going on without, and asking now and then", "consequence", t.resource.without,
				"error", explain(verb, t.resource, err))
		}
	default:
		text := explain(verb, t.resource, err).Error()
		if f == nil {
			f = &failing{since: now}
			t.verbs[verb] = f
		}
		if f.text != text || now.Sub(f.told) >= repeat {
			f.text, f.told = text, now
			t.log.Error("no news from the API server, what is known stays in force", "error", text)
		}
	}
}

// recovered: who may watch needs no list.
func (t *trouble) recovered(verb string, now time.Time) {
	if len(t.verbs) == 0 {
		return
	}
	since := now
	for _, f := range t.verbs {
		if f.since.Before(since) {
			since = f.since
		}
	}
	delete(t.verbs, verb)
	if verb == "watch" {
		clear(t.verbs)
	}
	if len(t.verbs) == 0 {
		t.log.Info("the API server answers again", "verb", verb, "after", now.Sub(since).Round(time.Millisecond))
	}
}

// Contact is how the API server is heard about one resource.
type Contact struct {
	Resource string // as a ClusterRole names it
	// Heard is when it answered or sent something last; zero for never.
	Heard time.Time
	// Failing is since when requests fail, zero when they do not, and Err the last
	// error.
	Failing time.Time
	Err     string
}

// Contacts tells about every resource that the proxy cannot do without.
func (s *Source) Contacts() (out []Contact) {
	for _, f := range s.follows {
		if f.resource.without == "" {
			out = append(out, f.trouble.contact())
		}
	}
	return out
}

// contact sums up list and watch: it fails since the first of the two does.
func (t *trouble) contact() Contact {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Contact{Resource: t.resource.name, Heard: t.heard}
	for _, verb := range slices.Sorted(maps.Keys(t.verbs)) {
		f := t.verbs[verb]
		if c.Failing.IsZero() || f.since.Before(c.Failing) {
			c.Failing = f.since
		}
		c.Err = f.text
	}
	return c
}

// ordinary tells of errors that a reflector answers by asking in another way: a
// version that is too old, a server without streaming lists.
func ordinary(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) ||
		apierrors.HasStatusCause(err, "ResourceVersionTooLarge") || apierrors.IsTooManyRequests(err)
}

// absent tells that a resource is not to be had: a kind or version that the API
// server does not know, or that it does not allow.
func absent(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// explain names what was tried, and what to grant where it was not allowed.
func explain(verb string, r resource, err error) error {
	// The address of a request differs each time, and says nothing new.
	var address *url.Error
	if errors.As(err, &address) {
		err = address.Err
	}
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("apiserver: %s %s is not allowed, grant the verbs list and watch on resources [%s] of apiGroups [%q] by a ClusterRole: %w",
			verb, r.name, r.name, r.group, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("apiserver: %s %s: the token or certificate of this proxy is not accepted: %w", verb, r.name, err)
	}
	return fmt.Errorf("apiserver: %s %s: %w", verb, r.name, err)
}
