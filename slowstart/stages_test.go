package slowstart

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan/service"
)

// web is a Service with ready endpoints of these numbers; "3!" is not ready.
func web(name string, slow time.Duration, endpoints string) *service.Service {
	s := &service.Service{Name: service.Name{Namespace: "default", Name: name}, SlowStart: slow, Ports: []service.Port{{Protocol: service.TCP, Port: 80}}}
	for word := range strings.FieldsSeq(endpoints) {
		number, notReady := strings.CutSuffix(word, "!")
		s.Ports[0].Endpoints = append(s.Ports[0].Endpoints,
			service.Endpoint{Addr: netip.MustParseAddrPort("10.0.0." + number + ":80"), Ready: !notReady, Serving: true})
	}
	return s
}

// warmth lists the endpoints that have not their full share.
func warmth(s *service.Snapshot, name string) string {
	svc := s.Service(service.Name{Namespace: "default", Name: name})
	if svc == nil {
		return "no Service"
	}
	var out []string
	for _, e := range svc.Ports[0].Endpoints {
		if e.Warmth != 0 {
			out = append(out, fmt.Sprintf("%d@%d", e.Addr.Addr().As4()[3], e.Warmth))
		}
	}
	return strings.Join(out, " ")
}

// story hands Snapshots to a Ramp and looks at what it hands on.
type story struct {
	t    *testing.T
	ramp *Ramp
	in   *service.Snapshot

	mu  sync.Mutex
	out []*service.Snapshot
}

func newStory(t *testing.T, first ...*service.Service) *story {
	s := &story{t: t}
	s.ramp = New(func(now *service.Snapshot) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.out = append(s.out, now)
	})
	s.in = (&service.Snapshot{}).With(service.Node{Name: "n"}, first, nil)
	s.ramp.Publish(s.in)
	return s
}

func (s *story) put(list ...*service.Service) {
	s.in = s.in.With(s.in.Node, list, nil)
	s.ramp.Publish(s.in)
}

func (s *story) last() *service.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out[len(s.out)-1]
}

// count is how many were handed on.
func (s *story) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out)
}

func (s *story) expect(what, want string) {
	s.t.Helper()
	synctest.Wait()
	if got := warmth(s.last(), "web"); got != want {
		s.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A fresh endpoint has a growing share, and no clock is asked when nothing is fresh.
func TestRamp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, web("web", 10*time.Second, "1 2"), web("plain", 0, "1"))
		defer s.ramp.Stop()
		s.expect("at the start", "")
		if s.last() != s.in {
			t.Error("without anything fresh it is another Snapshot")
		}
		s.put(web("web", 10*time.Second, "1 2 3"), web("plain", 0, "1 2"))
		s.expect("one comes", "3@1")
		if got := warmth(s.last(), "plain"); got != "" {
			t.Errorf("who did not ask: %s", got)
		}
		time.Sleep(1500 * time.Millisecond)
		s.expect("1.5 s later", "3@2")
		before := s.last().Service(service.Name{Namespace: "default", Name: "web"})
		s.put(web("plain", 0, "1"))
		s.expect("another Service changes", "3@2")
		if s.last().Service(before.Name) != before {
			t.Error("a Service that did not change is another value")
		}
		s.put(web("web", 10*time.Second, "1 2 3 4 5!"))
		s.expect("one more, and one that is not ready", "3@2 4@1")
		time.Sleep(7 * time.Second)
		s.expect("7 s later", "3@9 4@8")
		s.put(web("web", 10*time.Second, "1 2! 3! 4 5"))
		s.expect("two cease to be ready, one becomes", "4@8 5@1")
		s.put(web("web", 10*time.Second, "1 2 3 4 5"))
		s.expect("and they are again", "2@1 3@1 4@8 5@1")
		time.Sleep(10 * time.Second)
		s.expect("at the end", "")
		if s.last() != s.in {
			t.Error("the Snapshot at the end is not the one that came")
		}
		n := s.count()
		time.Sleep(time.Minute)
		if got := s.count(); got != n {
			t.Errorf("%d Snapshots while nothing was fresh", got-n)
		}
	})
}

func TestRampOfServices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t)
		s.put(web("web", time.Minute, "1 2"))
		s.expect("a Service comes", "")
		s.put(web("web", time.Minute, "1 2 3"))
		s.expect("it grows", "3@1")
		s.put(web("web", 0, "1 2 3"))
		s.expect("it does not ask any more", "")
		s.put(web("web", time.Minute, "1 2 3"))
		s.expect("it asks again", "")
		s.put(web("web", 10*time.Second, "1 2 3 4"))
		s.expect("with another time", "4@1")
		s.in = s.in.With(s.in.Node, nil, []service.Name{{Namespace: "default", Name: "web"}})
		s.ramp.Publish(s.in)
		s.expect("it goes", "no Service")
		s.put(web("web", 10*time.Second, "1 2 3 4"))
		s.expect("it comes back", "")
		s.put(web("web", 10*time.Second, "1 2 3 4 5"))
		s.ramp.Stop()
		n := s.count()
		time.Sleep(time.Minute)
		s.put(web("web", 10*time.Second, "1"))
		if s.count() != n {
			t.Error("something is handed on after Stop")
		}
	})
}

// The steps are a tenth each, and come in time.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStory(t, web("web", 10*time.Second, "1"))
		defer s.ramp.Stop()
		s.put(web("web", 10*time.Second, "1 2"))
		start := time.Now()
		for step := 1; step < service.WarmthSteps; step++ {
			s.expect(time.Since(start).String(), fmt.Sprintf("2@%d", step))
			time.Sleep(time.Second)
		}
		s.expect("the end", "")
		if n := s.count(); n != 2+service.WarmthSteps-1 {
			t.Errorf("%d Snapshots", n)
		}
	})
}
