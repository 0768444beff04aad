package localhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan/service"
)

// fakeHost listens on paper. Ports in taken are somebody else's.
type fakeHost struct {
	mu    sync.Mutex
	taken map[uint16]bool
	said  []string
}

type fakeListener struct {
	host *fakeHost
	port Port
	pick *picker
}

func (h *fakeHost) say(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

func (h *fakeHost) listen(_ context.Context, p Port, pick *picker) (listener, error) {
	h.mu.Lock()
	taken := h.taken[p.Addr.Port()]
	h.mu.Unlock()
	if taken {
		h.say("refused %d", p.Addr.Port())
		return nil, errors.New("address in use")
	}
	h.say("open %d", p.Addr.Port())
	return &fakeListener{h, p, pick}, nil
}

func (l *fakeListener) retarget() {
	l.host.say("retarget %d %v", l.port.Addr.Port(), l.pick.target.Endpoints)
}
func (l *fakeListener) close() { l.host.say("close %d", l.port.Addr.Port()) }

func (h *fakeHost) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.said, want) {
		t.Errorf("%s: %q, want %q", what, h.said, want)
	}
	h.said = nil
}

// A Port that somebody else has is tried again until it is free or not wanted any
// more, also while other things change all the time.
func TestServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &strings.Builder{}
		s := New(slog.New(slog.NewTextHandler(log, nil)))
		host := &fakeHost{taken: map[uint16]bool{30002: true, 30003: true}}
		s.listen = host.listen
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()

		const endpoint = "10.244.1.1:8080"
		now := (&service.Snapshot{}).With(node(), []*service.Service{
			nodePort("a", 30001, nil, endpoint), nodePort("b", 30002, nil, endpoint), nodePort("c", 30003, nil, endpoint),
		}, nil)
		start := time.Now()
		s.Publish(now)
		host.expect(t, "first", "open 30001", "refused 30002", "refused 30003")
		want := State{Listeners: 1, Refused: 2, Since: start, Failures: 2}
		if got := s.State(service.IPv4); got != want {
			t.Errorf("state %+v, want %+v", got, want)
		}
		if got := s.State(service.IPv6); got != (State{}) {
			t.Errorf("IPv6: %+v", got)
		}
		if list := s.Refused(); len(list) != 2 || !strings.Contains(list[0].Err.Error(), "Service default/b: listen on tcp 127.0.0.1:30002: address in use") {
			t.Errorf("refused: %v", list)
		}

		for i := range 30 { // changes faster than the retries
			time.Sleep(100 * time.Millisecond)
			now = now.With(now.Node, []*service.Service{nodePort("a", 30001, nil, fmt.Sprintf("10.244.1.%d:8080", i+2))}, nil)
			s.Publish(now)
		}
		synctest.Wait()
		host.mu.Lock()
		if n := len(slices.DeleteFunc(host.said, func(s string) bool { return s != "refused 30002" })); n != 1 {
			t.Errorf("tried again %d times in 3 s", n)
		}
		host.said = nil
		host.taken = nil
		host.mu.Unlock()
		s.Publish(now.With(now.Node, nil, []service.Name{{Namespace: "default", Name: "c"}}))
		host.expect(t, "one is not wanted any more")
		time.Sleep(2 * retryEvery)
		host.expect(t, "the other is free", "open 30002")
		if got := s.State(service.IPv4); got != (State{Listeners: 2, Failures: 4}) {
			t.Errorf("state %+v", got)
		}
		if n := strings.Count(log.String(), "will be tried again"); n != 2 || !strings.Contains(log.String(), "answers on loopback now") {
			t.Errorf("the log:\n%s", log)
		}
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if got := s.State(service.IPv4); got.Listeners != 0 {
			t.Errorf("state after the end: %+v", got)
		}
	})
}

// Endpoints are picked by chance, or in turn, or as the client had before.
func TestPicker(t *testing.T) {
	one, two := netip.MustParseAddrPort("10.244.1.1:80"), netip.MustParseAddrPort("10.244.1.2:80")
	both := []netip.AddrPort{one, two}
	p := &picker{target: Target{Endpoints: both}}
	now := time.Now()
	count := map[netip.AddrPort]int{}
	for range 1000 {
		count[p.pick(now)]++
	}
	if count[one] < 400 || count[two] < 400 {
		t.Errorf("choices %v", count)
	}

	p.set(Target{Endpoints: []netip.AddrPort{one, two, one}, Algorithm: service.RoundRobin})
	var turns []netip.AddrPort
	for range 4 {
		turns = append(turns, p.pick(now))
	}
	if !slices.Equal(turns, []netip.AddrPort{one, two, one, one}) {
		t.Errorf("turns %v", turns)
	}

	p.set(Target{Endpoints: both, Affinity: time.Minute})
	first := p.pick(now)
	for range 100 { // each use starts the time anew
		now = now.Add(59 * time.Second)
		if got := p.pick(now); got != first {
			t.Fatalf("%v after %v", got, first)
		}
	}
	p.set(Target{Endpoints: both[1:], Affinity: time.Minute})
	if got := p.pick(now); got != two || p.has(one) {
		t.Errorf("%v, which is no endpoint any more", got)
	}
	p.set(Target{Endpoints: both, Affinity: time.Minute})
	seen := map[netip.AddrPort]bool{}
	for range 100 {
		now = now.Add(time.Minute)
		seen[p.pick(now)] = true
	}
	if len(seen) != 2 {
		t.Errorf("after the time only %v", seen)
	}
}

// The session that was used longest ago ends when there are too many.
func TestSessions(t *testing.T) {
	s := newSessions(2)
	now := time.Now()
	var ended []string
	add := func(name string) *session {
		one := &session{end: func() { ended = append(ended, name) }}
		now = now.Add(time.Second)
		s.add(one, now)
		return one
	}
	a, b := add("a"), add("b")
	now = now.Add(time.Second)
	s.use(a, now, true)
	add("c")
	if !slices.Equal(ended, []string{"b"}) {
		t.Errorf("ended: %v", ended)
	}
	if got := s.expires(a).Sub(now); got >= idleAnswered || got <= idleUnanswered {
		t.Errorf("a session with answers lives for %v", got)
	}
	s.use(b, now, false) // it does not know yet
	if got := s.expires(b).Sub(now); got != idleUnanswered {
		t.Errorf("a session without answers lives for %v", got)
	}
	s.remove(b)
	s.remove(a)
	add("d")
	if len(ended) != 1 || s.order.Len() != 2 {
		t.Errorf("ended %v, %d left", ended, s.order.Len())
	}
}
