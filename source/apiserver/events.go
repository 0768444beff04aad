package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"portolan/service"
)

// Note is what an Event says, and about what.
type Note struct {
	Service         service.Name // the own Node when empty
	Warning         bool
	Reason, Message string // the reason in one word
}

const (
	component = "portolan"
	// notesWaiting bounds the Notes that wait while the API server is away or slow.
	notesWaiting = 200
	// eventsKept bounds the Events that are counted up instead of being made anew.
	eventsKept = 500
	// countedUp is how long the same trouble makes no second Event, eventPause the
	// least time from one change of its Event to the next.
	countedUp  = 30 * time.Minute
	eventPause = time.Minute
	// eventTries bounds the tries while nobody answers.
	eventTries = 6
	// eventLength is the longest message, in bytes, that an API server takes.
	eventLength = 1024
	// eventQPS and eventBurst bound requests about Events, apart from the others.
	eventQPS   = 2
	eventBurst = 50
)

// Tell makes an Event of a Note. It never blocks; a Note that finds too many waiting
// is only told to the log. The same Note again counts its Event up, at most once a
// minute.
func (s *Source) Tell(n Note) {
	select {
	case s.notes <- n:
	default:
		s.log.Debug("too many Events wait", "lost", n.Message)
	}
}

// recorder writes Events.
type recorder struct {
	client rest.Interface
	log    *slog.Logger
	node   string
	uid    func(service.Name) types.UID // empty when the Service is not there
	now    func() time.Time
	events map[Note]*written // without their messages
	mute   string            // the last error that was told
}

// written is an Event that is there.
type written struct {
	namespace, name string
	message         string
	count           int32     // as the Event says
	met             int32     // since then
	last            time.Time // when it was written
}

func (s *Source) newRecorder() *recorder {
	return &recorder{client: s.client.events, log: s.log, node: s.options.NodeName, uid: s.uid, now: time.Now, events: map[Note]*written{}}
}

// uid is that of a Service, empty when there is none.
func (s *Source) uid(name service.Name) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.services.known[name]; known.form != nil {
		return known.form.UID()
	}
	return ""
}

// run writes what is told until ctx ends.
func (r *recorder) run(ctx context.Context, notes <-chan Note) {
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-notes:
			r.record(ctx, n)
		}
	}
}

// record makes an Event, or counts one up, and tries again while nobody answers.
func (r *recorder) record(ctx context.Context, n Note) {
	if len(n.Message) > eventLength {
		n.Message = strings.ToValidUTF8(n.Message[:eventLength-3], "") + "..."
	}
	for try := range eventTries {
		err := r.write(ctx, n)
		if err == nil {
			r.mute = ""
			return
		}
		var status apierrors.APIStatus
		if errors.As(err, &status) || try == eventTries-1 || ctx.Err() != nil {
			r.complain(err, n)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second << try):
		}
	}
}

// complain tells the log, once for each error, that Events do not get written.
func (r *recorder) complain(err error, n Note) {
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("it is not allowed, grant the verbs create and patch on resources [events] of apiGroups [\"\"] by a ClusterRole: %w", err)
	}
	text := err.Error()
	if text == r.mute {
		return
	}
	r.mute = text
	r.log.Warn("an Event could not be written", "reason", n.Reason, "error", err)
}

// write makes an Event of a Note, or counts the one up that is there: soon when its text
// is another one, else at most once in eventPause.
func (r *recorder) write(ctx context.Context, n Note) error {
	key := n
	key.Message = ""
	now := r.now()
	e := r.events[key]
	if e != nil && now.Sub(e.last) > countedUp {
		delete(r.events, key)
		e = nil
	}
	if e == nil {
		return r.create(ctx, key, n, now)
	}
	e.met++
	if now.Sub(e.last) < eventPause && e.message == n.Message {
		return nil
	}
	err := r.count(ctx, e, n, now)
	switch {
	case apierrors.IsNotFound(err): // Events do not live long
		delete(r.events, key)
		return r.create(ctx, key, n, now)
	case err != nil:
		e.met--
	}
	return err
}

// create writes a new Event, about a Service or else about the own Node.
func (r *recorder) create(ctx context.Context, key, n Note, now time.Time) error {
	about := v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)} // as kubelet's
	namespace := metav1.NamespaceDefault
	if n.Service != (service.Name{}) {
		about = v1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: n.Service.Namespace, Name: n.Service.Name, UID: r.uid(n.Service)}
		if about.UID == "" {
			return nil // it is gone
		}
		namespace = n.Service.Namespace
	}
	kind := v1.EventTypeNormal
	if n.Warning {
		kind = v1.EventTypeWarning
	}
	at := metav1.NewTime(now)
	event := &v1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano())},
		InvolvedObject:      about,
		Type:                kind,
		Reason:              n.Reason,
		Message:             n.Message,
		Source:              v1.EventSource{Component: component, Host: r.node},
		ReportingController: component,
		ReportingInstance:   component + "-" + r.node,
		FirstTimestamp:      at,
		LastTimestamp:       at,
		Count:               1,
	}
	if err := r.client.Post().Namespace(namespace).Resource("events").Body(event).Do(ctx).Error(); err != nil {
		return err
	}
	if len(r.events) >= eventsKept {
		clear(r.events) // each of them is made anew once
	}
	r.events[key] = &written{namespace: namespace, name: event.Name, message: n.Message, count: 1, last: now}
	return nil
}

// count counts an Event up.
func (r *recorder) count(ctx context.Context, e *written, n Note, now time.Time) error {
	patch, err := json.Marshal(map[string]any{
		"count": e.count + e.met, "lastTimestamp": metav1.NewTime(now), "message": n.Message,
	})
	if err != nil {
		return fmt.Errorf("apiserver: Event: %w", err)
	}
	err = r.client.Patch(types.MergePatchType).Namespace(e.namespace).Resource("events").Name(e.name).Body(patch).Do(ctx).Error()
	if err == nil {
		e.count, e.met, e.message, e.last = e.count+e.met, 0, n.Message, now
	}
	return err
}
