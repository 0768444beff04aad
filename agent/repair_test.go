package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// slowBackend takes its time for a full look.
type slowBackend struct {
	*fakeBackend
	look    atomic.Int64 // nanoseconds
	given   atomic.Int32 // looks that were given up
	failing atomic.Bool  // every write

	use sync.Mutex // of the Fake
}

func (b *slowBackend) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		select {
		case <-time.After(time.Duration(b.look.Load())):
		case <-ctx.Done():
			b.given.Add(1)
			yield(dataplane.Object{}, ctx.Err())
			return
		}
		b.use.Lock()
		defer b.use.Unlock()
		for o, err := range b.fakeBackend.Observe(ctx) {
			if !yield(o, err) {
				return
			}
		}
	}
}

func (b *slowBackend) Apply(ctx context.Context, p dataplane.Plan) error {
	b.use.Lock()
	defer b.use.Unlock()
	return b.fakeBackend.Apply(ctx, p)
}

// flush takes everything away, and tells.
func (b *slowBackend) flush(n dataplane.Notice) {
	b.use.Lock()
	b.Disturb("services", nil)
	b.Disturb("base", nil)
	b.use.Unlock()
	dataplane.Tell(b.disturb, n)
}

func (b *slowBackend) whole() bool {
	b.use.Lock()
	defer b.use.Unlock()
	return len(b.Content()["services"])*len(b.Content()["base"]) == 1
}

func (b *slowBackend) counts() (observed, applied int) {
	b.use.Lock()
	defer b.use.Unlock()
	return b.Observed, b.Applied
}

// results collects what an agent says.
type results struct {
	mu   sync.Mutex
	list []Result
}

func (r *results) add(one Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, one)
}

func (r *results) take() []Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.list
	r.list = nil
	return out
}

// runSlow starts an agent whose looks take 10 s, with one Service.
func runSlow(t *testing.T, scenario func(a *Agent, b *slowBackend, s *service.Snapshot, r *results)) {
	runSlowWith(t, options(), scenario)
}

func runSlowWith(t *testing.T, o Options, scenario func(a *Agent, b *slowBackend, s *service.Snapshot, r *results)) {
	b := &slowBackend{fakeBackend: newFakeBackend()}
	b.Refuse = func(dataplane.Plan) error {
		if b.failing.Load() {
			return errors.New("no lock")
		}
		return nil
	}
	r := &results{}
	o.Synced = r.add
	runFamilies(t, b.fakeBackend, []Family{{service.IPv4, b}}, o, func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{svc("a", "10.0.0.1")}, nil)
		a.Publish(s)
		pass(time.Minute)
		b.look.Store(int64(10 * time.Second))
		r.take()
		scenario(a, b, s, r)
	})
}

// gone is what a glance finds after everything was flushed.
var gone = dataplane.Notice{By: "nft", Urgent: true, Glance: &dataplane.Glance{Emptied: []string{""}}}

// What is known to be missing is written at once, and then a full look follows.
func TestWhatIsMissingIsWrittenFirst(t *testing.T) {
	runSlow(t, func(_ *Agent, b *slowBackend, _ *service.Snapshot, r *results) {
		b.flush(gone)
		pass(time.Millisecond)
		list := r.take()
		if !b.whole() || len(list) != 1 || list[0].Full || list[0].By != "nft" {
			t.Fatalf("content %v after %+v", b.Content(), list)
		}
		if d := list[0].Report.Damage; d.Containers != 2 || d.Missing != 2 || d.Foreign != 0 || len(d.Lines) != 2 {
			t.Errorf("damage %+v", d)
		}
		pass(time.Minute)
		if list := r.take(); len(list) != 1 || !list[0].Full || list[0].Report.Writes != 0 || !list[0].Report.Damage.None() {
			t.Errorf("then %+v", list)
		}
	})
}

// A look that is under way is given up for that.
func TestALookGivesWay(t *testing.T) {
	runSlow(t, func(_ *Agent, b *slowBackend, _ *service.Snapshot, r *results) {
		dataplane.Tell(b.disturb, dataplane.Notice{})
		pass(15 * time.Second / 2)
		b.flush(gone)
		pass(time.Millisecond)
		if list := r.take(); !b.whole() || b.given.Load() != 1 || len(list) != 1 || list[0].Report.Damage.None() {
			t.Errorf("given up %d, content %v after %+v", b.given.Load(), b.Content(), list)
		}
		pass(time.Minute)
		if list := r.take(); len(list) != 1 || !list[0].Full || list[0].Err != nil {
			t.Errorf("then %+v", list)
		}
	})
}

// Neighbours who write all the time do not make us look all the time, and delay
// neither changes nor what is urgent.
func TestLooksRest(t *testing.T) {
	runSlow(t, func(a *Agent, b *slowBackend, s *service.Snapshot, r *results) {
		observed, applied := b.counts()
		for i := range 3000 { // five minutes
			dataplane.Tell(b.disturb, dataplane.Notice{})
			if i%100 == 0 {
				s = s.With(s.Node, []*service.Service{svc("a", fmt.Sprintf("10.0.1.%d", i/100))}, nil)
				a.Publish(s)
			}
			pass(100 * time.Millisecond)
		}
		looks, writes := b.counts()
		if n := looks - observed; n < 2 || n > 4 {
			t.Errorf("%d looks of 10 s in five minutes", n)
		}
		if n := writes - applied; n < 20 {
			t.Errorf("only %d writes of 30 changes", n)
		}
		pass(10 * time.Minute)
		b.look.Store(0)
		dataplane.Tell(b.disturb, dataplane.Notice{})
		pass(time.Minute)
		b.look.Store(int64(10 * time.Second))
		dataplane.Tell(b.disturb, dataplane.Notice{})
		pass(11 * time.Second) // a rest of 90 s begins
		b.flush(dataplane.Notice{Urgent: true})
		pass(11 * time.Second)
		if !b.whole() {
			t.Errorf("what is urgent waits: %v", b.Content())
		}
	})
}

// Two who undo each other's work do not do it as fast as they can.
func TestARepairThatIsUndoneAtOnceIsPaced(t *testing.T) {
	for _, period := range []time.Duration{time.Second, 10 * time.Millisecond} { // of iptables and nftables mode
		o := options()
		o.MinSyncPeriod = period
		runSlowWith(t, o, func(_ *Agent, b *slowBackend, _ *service.Snapshot, r *results) {
			_, before := b.counts()
			for range 1200 { // a minute
				if b.whole() {
					b.flush(gone)
				}
				pass(50 * time.Millisecond)
			}
			if _, after := b.counts(); after-before < 20 || after-before > 301 {
				t.Errorf("at most a write every %v: repaired %d times in a minute", period, after-before)
			}
		})
	}
}

// What a failed write left behind is not laid at the door of others.
func TestAFailureIsNoDamage(t *testing.T) {
	runSlow(t, func(a *Agent, b *slowBackend, s *service.Snapshot, r *results) {
		b.look.Store(0)
		b.failing.Store(true)
		a.Publish(s.With(service.Node{Zone: "z"}, []*service.Service{svc("b", "10.0.0.2")}, nil))
		pass(10 * time.Second)
		b.failing.Store(false)
		pass(time.Minute)
		list := r.take()
		if last := list[len(list)-1]; last.Err != nil {
			t.Errorf("at last %v", last.Err)
		}
		for _, one := range list {
			if !one.Report.Damage.None() {
				t.Errorf("damage %+v", one.Report.Damage)
			}
		}
	})
}

// TestRivalsAreNamed: of two proxies on one node each undoes what the other wrote.
func TestRivalsAreNamed(t *testing.T) {
	for by, want := range map[string]string{
		"portolan":   `(the last was "portolan", another one: a cleanup, or a proxy, of which only one may run on a node) changed`,
		"kube-proxy": `(the last was "kube-proxy": only one Service proxy may run on a node) changed`,
		"nft":        `(the last was "nft") changed`,
		"":           `somebody else changed`,
	} {
		if text := damageText(Result{By: by}); !strings.Contains(text, want) {
			t.Errorf("%q: %s", by, text)
		}
	}
}
