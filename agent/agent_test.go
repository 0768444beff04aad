package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// fakeBackend writes one line a Service into one container of a Fake.
type fakeBackend struct {
	*dataplane.Fake
	mu       sync.Mutex
	rendered []string
	broken   string // name of a Service that cannot be rendered
	disturb  chan dataplane.Notice
}

func newFakeBackend() *fakeBackend {
	return &fakeBackend{Fake: &dataplane.Fake{}}
}

func (b *fakeBackend) Base(n service.Node) []dataplane.Object {
	return []dataplane.Object{{Key: dataplane.Key{Container: "base", Name: "zone"}, Body: "zone " + n.Zone}}
}

func (b *fakeBackend) Render(n service.Node, s *service.Service) ([]dataplane.Object, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Name.Name == b.broken {
		return nil, errors.New("broken")
	}
	b.rendered = append(b.rendered, s.Name.Name)
	return []dataplane.Object{{Key: dataplane.Key{Container: "services", Name: s.Name.Name}, Body: fmt.Sprint(s.Name, s.ClusterIPs)}}, nil
}

// spoil has the Service of that name not be rendered any more; "": every one is.
func (b *fakeBackend) spoil(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = name
}

func (b *fakeBackend) Changes(context.Context) <-chan dataplane.Notice {
	b.disturb = make(chan dataplane.Notice, 1) // in the bubble
	return b.disturb
}

func (b *fakeBackend) takeRendered() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := slices.Sorted(slices.Values(b.rendered))
	b.rendered = nil
	return strings.Join(out, " ")
}

func svc(name, ip string) *service.Service {
	return &service.Service{Name: service.Name{Namespace: "ns", Name: name}, ClusterIPs: []netip.Addr{netip.MustParseAddr(ip)}}
}

func options() Options {
	return Options{MinSyncPeriod: time.Second, FullPeriod: time.Hour, RetryMin: time.Second, RetryMax: 8 * time.Second,
		Log: slog.New(slog.DiscardHandler)}
}

// run starts an agent in a bubble and calls the scenario; sleeps there are of
// the bubble's clock.
func run(t *testing.T, b *fakeBackend, o Options, scenario func(a *Agent)) {
	runFamilies(t, b, []Family{{service.IPv4, b}}, o, scenario)
}

func runFamilies(t *testing.T, b *fakeBackend, families []Family, o Options, scenario func(a *Agent)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		a := New(families, o)
		done := make(chan struct{})
		go func() { a.Run(ctx); close(done) }()
		scenario(a)
		cancel()
		<-done
	})
}

// pass lets time go by and waits until everything that became due is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Nothing is done before anything is known, and writes keep their distance.
func TestPacing(t *testing.T) {
	b := newFakeBackend()
	run(t, b, options(), func(a *Agent) {
		pass(time.Minute)
		if b.Observed+b.Applied != 0 {
			t.Error("something was done before anything was known")
		}
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil)
		a.Publish(s)
		synctest.Wait()
		if b.Observed != 1 || b.Applied != 1 {
			t.Errorf("first write: observed %d applied %d", b.Observed, b.Applied)
		}
		pass(time.Minute)   // quiet
		for i := range 10 { // a storm of half a second
			s = s.With(s.Node, []*service.Service{svc("a", fmt.Sprintf("10.0.1.%d", i))}, nil)
			a.Publish(s)
			synctest.Wait()
			if i == 0 && b.Applied != 2 {
				t.Errorf("first change after a quiet time was not written at once")
			}
			pass(50 * time.Millisecond)
		}
		pass(time.Minute)
		if b.Applied != 3 {
			t.Errorf("storm: %d writes in all, want 3", b.Applied)
		}
		if got := b.Content()["services"]; !slices.Equal(got, []string{"ns/a [10.0.1.9]"}) {
			t.Errorf("content %v", got)
		}
		if b.Observed != 1 {
			t.Errorf("observed %d times", b.Observed)
		}
		a.Publish(s)
		pass(time.Minute)
		if b.Applied != 3 {
			t.Error("a Snapshot without change was written")
		}
		pass(time.Hour)
		if b.Observed != 2 || b.Applied != 3 {
			t.Errorf("timer: observed %d applied %d", b.Observed, b.Applied)
		}
	})
}

func TestOnlyChangedServicesAreRendered(t *testing.T) {
	b := newFakeBackend()
	run(t, b, options(), func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1"), svc("b", "10.0.0.2"), svc("c", "10.0.0.3")}, nil)
		step := func(what, want string) {
			t.Helper()
			a.Publish(s)
			pass(2 * time.Second)
			if got := b.takeRendered(); got != want {
				t.Errorf("%s: rendered %q, want %q", what, got, want)
			}
		}
		step("start", "a b c")
		s = s.With(s.Node, []*service.Service{svc("b", "10.0.0.9")}, []service.Name{{Namespace: "ns", Name: "c"}})
		step("change and delete", "b")
		if got := b.Content()["services"]; len(got) != 2 {
			t.Errorf("content %v", got)
		}
		applied := b.Applied
		s = s.With(service.Node{Zone: "z"}, nil, nil)
		step("zone", "a b")
		if b.Applied != applied+1 {
			t.Errorf("zone: %d writes", b.Applied-applied)
		}
		s = s.With(service.Node{Zone: "z", Name: "n"}, nil, nil) // no rule depends on the name here
		step("name", "a b")
		if b.Applied != applied+1 {
			t.Errorf("name: something was written")
		}
	})
}

func TestFailuresAreRetriedAndLoseNothing(t *testing.T) {
	b := newFakeBackend()
	var results []Result
	o := options()
	o.Synced = func(r Result) { results = append(results, r) }
	var full atomic.Bool
	full.Store(true)
	b.Refuse = func(dataplane.Plan) error {
		if full.Load() {
			return errors.New("disk full")
		}
		return nil
	}
	run(t, b, o, func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil)
		a.Publish(s)
		pass(time.Minute)
		if n := len(results); n < 6 || n > 12 {
			t.Errorf("%d tries in a minute; pauses of 1, 2, 4, 8, 8, ... seconds make about 9", n)
		}
		full.Store(false)
		pass(10 * time.Second)
		last := results[len(results)-1]
		if last.Err != nil || !last.Full || len(b.Content()["services"]) != 1 {
			t.Errorf("after recovery: %+v, content %v", last, b.Content())
		}
	})
}

func TestABrokenServiceDoesNotStopTheOthers(t *testing.T) {
	b := newFakeBackend()
	b.broken = "b"
	var last Result
	o := options()
	o.Synced = func(r Result) { last = r }
	run(t, b, o, func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1"), svc("b", "10.0.0.2"), svc("c", "10.0.0.3")}, nil)
		step := func(put *service.Service, gone ...service.Name) {
			t.Helper()
			s = s.With(s.Node, []*service.Service{put}, gone)
			a.Publish(s)
			pass(2 * time.Second)
		}
		a.Publish(s)
		pass(2 * time.Second)
		if got := b.Content()["services"]; len(got) != 2 || last.Err != nil || last.Refused["ns/b"] == nil {
			t.Errorf("content %v, error %v, refused %v", got, last.Err, last.Refused)
		}
		// Its neighbours come and go as ever, and are all that is rendered.
		b.takeRendered()
		step(svc("d", "10.0.0.4"))
		step(svc("a", "10.0.0.9"), service.Name{Namespace: "ns", Name: "d"})
		if got := b.Content()["services"]; len(got) != 2 || !strings.Contains(strings.Join(got, " "), "10.0.0.9") {
			t.Errorf("content %v", got)
		}
		if got := b.takeRendered(); got != "a d" || b.Observed != 1 {
			t.Errorf("rendered %q, observed %d times", got, b.Observed)
		}
		b.spoil("")
		step(svc("b", "10.0.0.2"))
		if got := b.Content()["services"]; len(got) != 3 || len(last.Refused) > 0 {
			t.Errorf("after mending: content %v, refused %v", got, last.Refused)
		}
	})
}

// A Service whose rules the kernel does not take is named and tried again now
// and then; changes of others cost what they always do.
func TestARefusedServiceDoesNotStopTheOthers(t *testing.T) {
	b := newFakeBackend()
	var last Result
	o := options()
	o.Synced = func(r Result) { last = r }
	b.Refuse = func(p dataplane.Plan) error {
		for _, c := range p.Changes {
			for _, o := range c.Created {
				if o.Key.Name == "b" {
					return &dataplane.Refusal{Key: o.Key, Err: errors.New("no such match")}
				}
			}
		}
		return nil
	}
	run(t, b, o, func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1"), svc("b", "10.0.0.2")}, nil)
		a.Publish(s)
		pass(2 * time.Second)
		if got := b.Content()["services"]; len(got) != 1 || last.Err != nil || last.Refused["ns/b"] == nil {
			t.Errorf("content %v, error %v, refused %v", got, last.Err, last.Refused)
		}
		observed := b.Observed
		for i := range 5 {
			if b.Observed != observed {
				t.Errorf("observed %d times more for changes of others", b.Observed-observed)
			}
			s = s.With(s.Node, []*service.Service{svc("a", fmt.Sprintf("10.0.1.%d", i))}, nil)
			a.Publish(s)
			if i < 4 {
				pass(time.Second)
			}
		}
		pass(10 * time.Hour)
		if n := b.Observed - observed; n < 10 || n > 60 {
			t.Errorf("tried again %d times in ten hours", n)
		}
	})
}

// A Service that is refused when it comes does not wait for the next look that comes
// anyway, nor for that at another one, which is refused for long.
func TestARefusedServiceIsTriedAgainSoon(t *testing.T) {
	b := newFakeBackend()
	var full atomic.Bool
	full.Store(true)
	b.Refuse = func(p dataplane.Plan) error {
		for _, c := range p.Changes {
			for _, o := range c.Created {
				if full.Load() && o.Key.Name == "b" || o.Key.Name == "c" {
					return &dataplane.Refusal{Key: o.Key, Err: errors.New("no room")}
				}
			}
		}
		return nil
	}
	run(t, b, options(), func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1"), svc("c", "10.0.0.3")}, nil)
		a.Publish(s)
		pass(10 * time.Hour)
		a.Publish(s.With(s.Node, []*service.Service{svc("b", "10.0.0.2")}, nil))
		pass(time.Second)
		full.Store(false)
		pass(options().RetryMax)
		if got := b.Content()["services"]; len(got) != 2 {
			t.Errorf("content %v", got)
		}
	})
}

func TestDamageByOthersIsRepaired(t *testing.T) {
	b := newFakeBackend()
	run(t, b, options(), func(a *Agent) {
		a.Publish((&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil))
		pass(time.Minute)
		b.Disturb("services", nil)
		b.disturb <- dataplane.Notice{}
		pass(time.Second)
		if got := b.Content()["services"]; len(got) != 1 {
			t.Errorf("content %v", got)
		}
	})
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 8, 1000: 8} {
		if got := backoff(1, 8, failures); got != want {
			t.Errorf("backoff after %d = %d, want %d", failures, got, want)
		}
	}
}
