package conntrack

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// fakeTable holds flows; it fails, or takes its time, as it is told.
type fakeTable struct {
	flows []conntrack.Flow
	takes time.Duration
	asked []conntrack.Filter

	mu  sync.Mutex
	err error
}

func (f *fakeTable) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeTable) problem() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeTable) Flows(ctx context.Context, filters ...conntrack.Filter) iter.Seq2[conntrack.Flow, error] {
	return func(yield func(conntrack.Flow, error) bool) {
		f.asked = append(f.asked, filters...)
		time.Sleep(f.takes)
		if err := f.problem(); err != nil {
			yield(conntrack.Flow{}, err)
			return
		}
		for _, flow := range slices.Clone(f.flows) {
			selects := func(filter conntrack.Filter) bool { return filter.Match(flow) }
			if slices.ContainsFunc(filters, selects) && !yield(flow, nil) {
				return
			}
		}
	}
}

func (f *fakeTable) Delete(flows []conntrack.Flow) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := len(f.flows)
	f.flows = slices.DeleteFunc(f.flows, func(flow conntrack.Flow) bool { return slices.Contains(flows, flow) })
	return before - len(f.flows), nil
}

func (f *fakeTable) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.flows)
}

// bench runs a Reconciler over a fake table, in a bubble of fake time.
type bench struct {
	*Reconciler
	table  *fakeTable
	idle   bool // passes wait for something else all the time
	passes []Pass
}

func inBubble(t *testing.T, test func(*testing.T, *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b, start := &bench{table: &fakeTable{}}, time.Now()
		b.Reconciler = New(Options{
			Family: service.IPv4, Table: b.table,
			LocalAddrs: func() ([]netip.Addr, error) { return local, nil },
			TCPReset:   func() bool { return false },
			Busy: func() time.Duration {
				if b.idle {
					return 0
				}
				return time.Since(start)
			},
			Done: func(p Pass) { b.passes = append(b.passes, p) },
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.Run(ctx); close(done) }()
		test(t, b)
		stop()
		<-done
	})
}

// settle waits until nothing is under way, with a pause of at most that long.
func (b *bench) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func snapshotOf(list ...*service.Service) *service.Snapshot {
	return (&service.Snapshot{}).With(service.Node{}, list, nil)
}

// TestCameAndWent: a Service that comes and goes again between two passes may have
// flows, which lead nowhere then.
func TestCameAndWent(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first := snapshotOf(empty())
		b.Written(Written{Snapshot: first})
		b.settle(time.Second)
		with := first.With(first.Node, []*service.Service{dns()}, nil)
		b.Written(Written{Snapshot: with})
		b.table.flows = []conntrack.Flow{flow(t, "udp 10.96.0.10:53 10.244.1.1:53")}
		b.Written(Written{Snapshot: with.With(with.Node, nil, []service.Name{dns().Name})})
		b.settle(time.Second)
		if len(b.table.flows) != 0 {
			t.Errorf("left %v after %+v", b.table.flows, b.passes)
		}
	})
}

// TestEachIsUnderWay: what is written shortly before a pass is left to the next: a
// packet that still met the rules of before may be under way.
func TestEachIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first := snapshotOf(dns(), empty())
		b.Written(Written{Snapshot: first})
		b.settle(time.Second)
		b.table.flows = []conntrack.Flow{flow(t, "udp 10.96.0.10:53 10.244.1.1:53")}
		second := first.With(first.Node, nil, []service.Name{empty().Name})
		b.Written(Written{Snapshot: second})
		b.settle(underWay - time.Millisecond)
		b.Written(Written{Snapshot: second.With(second.Node, nil, []service.Name{dns().Name})})
		b.settle(underWay - time.Millisecond)
		if b.table.count() != 1 {
			t.Error("removed too early")
		}
		b.settle(2 * time.Millisecond)
		if len(b.table.flows) != 0 {
			t.Errorf("left %v after %+v", b.table.flows, b.passes)
		}
	})
}

// TestFullAtStartThenWhatChanged: the first pass looks at everything; later ones at
// what changed, if anything that matters did.
func TestFullAtStartThenWhatChanged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		good, bad := flow(t, "udp 10.96.0.10:53 10.244.1.1:53"), flow(t, "udp 192.0.2.11:30053 10.244.1.9:53")
		b.table.flows = []conntrack.Flow{good, bad}
		first := snapshotOf(dns(), empty())
		b.Written(Written{Snapshot: first})
		b.settle(time.Second)
		if len(b.passes) != 1 || !b.passes[0].Full || b.passes[0].Removed != 1 || b.passes[0].Reasons[NotServing] != 1 || !slices.Equal(b.table.flows, []conntrack.Flow{good}) {
			t.Fatalf("first: %+v, left %v", b.passes, b.table.flows)
		}
		relabelled := dns()
		relabelled.Triggers = []time.Time{time.Unix(1, 0)}
		next := first.With(first.Node, []*service.Service{relabelled}, nil)
		b.Written(Written{Snapshot: next})
		b.settle(time.Second)
		if len(b.passes) != 1 {
			t.Fatalf("nothing changed, and yet: %+v", b.passes[1:])
		}
		b.table.asked = nil
		b.Written(Written{Snapshot: next.With(next.Node, nil, []service.Name{dns().Name})})
		b.settle(time.Second)
		if len(b.passes) != 2 || b.passes[1].Full || b.passes[1].Removed != 1 || b.passes[1].Reasons[NoService] != 1 {
			t.Fatalf("a Service less: %+v", b.passes)
		}
		b.Written(Written{Snapshot: next, Repaired: true})
		b.settle(time.Second)
		if len(b.passes) != 3 || !b.passes[2].Full {
			t.Fatalf("a repair: %+v", b.passes)
		}
	})
}

// TestFailuresAreTriedAgain: what a pass that failed was to do is done later, in
// full, after pauses that double.
func TestFailuresAreTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first := snapshotOf(dns())
		b.Written(Written{Snapshot: first})
		b.settle(time.Second)
		b.table.flows = []conntrack.Flow{flow(t, "udp 10.96.0.10:53 10.244.1.1:53")}
		b.table.fails(errors.New("no memory"))
		b.Written(Written{Snapshot: first.With(first.Node, nil, []service.Name{dns().Name})})
		b.settle(6 * time.Second) // at 0, 1 and 3 s
		if len(b.passes) != 4 || b.passes[3].Err == nil {
			t.Fatalf("after 6 s: %+v", b.passes)
		}
		b.table.fails(nil)
		b.settle(2 * time.Second)
		if len(b.passes) != 5 || !b.passes[4].Full || b.passes[4].Removed != 1 || len(b.table.flows) != 0 {
			t.Errorf("in the end: %+v, left %v", b.passes[4:], b.table.flows)
		}
	})
}

// TestWrittenNeverWaits: while a pass takes long, changes gather, and one pass does
// them all; passes take a tenth of the time at most.
func TestWrittenNeverWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.table.takes = time.Second
		now := snapshotOf(dns())
		b.Written(Written{Snapshot: now})
		for i := range 100 {
			s := empty()
			s.Name.Name, s.ClusterIPs[0] = fmt.Sprint("s", i), netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})
			now = now.With(now.Node, []*service.Service{s}, nil)
			b.Written(Written{Snapshot: now})
			time.Sleep(100 * time.Millisecond)
		}
		start := time.Now()
		b.settle(100 * time.Second)
		if took := time.Since(start); took != 100*time.Second {
			t.Errorf("Written took %v", took-100*time.Second)
		}
		busy := time.Duration(0)
		for _, p := range b.passes {
			busy += p.Duration
		}
		if len(b.passes) != 2 || busy > 11*time.Second || b.known != now {
			t.Errorf("%d passes, %v busy in 110 s", len(b.passes), busy)
		}
	})
}

// TestSlowPass: a pass that took long for others' sake delays the next no longer than
// any: what comes then is looked at as soon as answers under way have arrived.
func TestSlowPass(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.idle, b.table.takes = true, 3*time.Second
		first := snapshotOf(empty())
		b.Written(Written{Snapshot: first})
		b.settle(4 * time.Second)
		b.table.takes = 0
		b.table.flows = []conntrack.Flow{flow(t, "udp 10.96.0.10:53 10.96.0.10:53")}
		b.Written(Written{Snapshot: first.With(first.Node, []*service.Service{dns()}, nil)})
		b.settle(underWay + time.Millisecond)
		if len(b.passes) != 2 || b.passes[1].Reasons[Untranslated] != 1 {
			t.Errorf("passes: %+v", b.passes)
		}
	})
}

// TestRefusedServices: flows to a Service that is not programmed as it asks are
// judged by what is in force.
func TestRefusedServices(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		first := snapshotOf(dns())
		b.Written(Written{Snapshot: first})
		b.settle(time.Second)
		kept := flow(t, "udp 10.96.0.10:53 10.244.1.1:53")
		b.table.flows = []conntrack.Flow{kept, flow(t, "udp 10.96.0.11:53 10.96.0.11:53")}
		changed := dns()
		for i := range changed.Ports {
			changed.Ports[i].Endpoints = nil
		}
		now := first.With(first.Node, []*service.Service{changed, empty()}, nil)
		b.Written(Written{Snapshot: now, Refused: []service.Name{changed.Name, {Namespace: "default", Name: "empty"}}})
		b.settle(time.Second)
		if len(b.table.flows) != 2 {
			t.Fatalf("left: %v", b.table.flows)
		}
		b.Written(Written{Snapshot: now})
		b.settle(time.Second)
		if len(b.table.flows) != 0 {
			t.Errorf("in force, and left: %v", b.table.flows)
		}
	})
}
