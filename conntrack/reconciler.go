package conntrack

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// Table is the kernel's table of connections, of one family's Reconciler alone.
type Table interface {
	Flows(context.Context, ...conntrack.Filter) iter.Seq2[conntrack.Flow, error]
	Delete([]conntrack.Flow) (removed int, err error)
}

// Options of a Reconciler. No field may be nil.
type Options struct {
	Family service.Family
	Table  Table
	// LocalAddrs returns the addresses of this node's interfaces.
	LocalAddrs func() ([]netip.Addr, error)
	// TCPReset tells whether established connections of TCP to endpoints that are
	// gone are removed; it is asked before each pass.
	TCPReset func() bool
	// Busy is the processor time that the calling thread has had, in the kernel too.
	Busy func() time.Duration
	Done func(Pass) // after each pass
}

// Pass is one look at the table, as it ended.
type Pass struct {
	Family   service.Family
	Full     bool // all Services were looked at, else those that changed
	Read     int  // flows that the kernel named
	Removed  int
	Reasons  map[Reason]int // of the flows that were to be removed
	Duration time.Duration
	Err      error // some of it was not done and will be tried again
}

// Written is what the kernel has been told in one family.
type Written struct {
	Snapshot *service.Snapshot
	// Refused are Services that are not programmed as they ask.
	Refused []service.Name
	// Repaired tells that other rules were in force than those that had been
	// written, so that any flow may be from a wrong one.
	Repaired bool
}

// Reconciler removes the flows of one family that lead nowhere, each time that
// rules were written.
type Reconciler struct {
	options Options
	wake    chan struct{}

	mu      sync.Mutex
	written []noted // in turn, until it is taken up

	index *Index
	known *service.Snapshot // what index knows; nil before anything was written
}

// The pace: passes take at most a tenth of a processor's time, and after a failure there
// is a pause, which doubles. What a pass waits for on a busy machine does not count: a
// flow that leads nowhere would wait ten times as long.
const (
	restFactor         = 9
	retryMin, retryMax = time.Second, 5 * time.Minute
)

// underWay is how long after a write the last packet that still met the rules of
// before may need until the kernel tracks its flow, and the answer to it until it is
// translated back: an endpoint that still answers does so within that.
const underWay = 100 * time.Millisecond

// batch bounds how many flows wait to be removed.
const batch = 4096

// New returns a Reconciler that does nothing before something was Written.
func New(o Options) *Reconciler {
	return &Reconciler{options: o, wake: make(chan struct{}, 1), index: NewIndex(o.Family)}
}

// mostWritten bounds how much waits to be taken up. Snapshots share what is the same.
const mostWritten = 1024

// noted is what was written, and when.
type noted struct {
	Written
	at time.Time
}

// Written takes up what was written. It never blocks. All that was waits in turn, since
// a Service that has come and gone again may have flows; only of very much is the last
// passed over for the newer.
func (r *Reconciler) Written(w Written) {
	r.mu.Lock()
	if n := len(r.written); n == mostWritten {
		w.Repaired = w.Repaired || r.written[n-1].Repaired
		r.written[n-1] = noted{w, time.Now()}
	} else {
		r.written = append(r.written, noted{w, time.Now()})
	}
	r.mu.Unlock()
	r.wakeUp()
}

func (r *Reconciler) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default: // awake already
	}
}

// take gives what was written longer than underWay ago.
func (r *Reconciler) take() (list []Written) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.written) > 0 && time.Since(r.written[0].at) >= underWay {
		list = append(list, r.written[0].Written)
		r.written = r.written[1:]
	}
	if len(r.written) == 0 {
		r.written = nil
	} else {
		r.wakeUp()
	}
	return list
}

// rest is how long the first that was written has to wait yet.
func (r *Reconciler) rest() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.written) == 0 {
		return 0
	}
	return time.Until(r.written[0].at.Add(underWay))
}

// Run works until ctx ends. It looks at all flows at first, after a failure, and
// after a repair; else at those that a change may have touched.
func (r *Reconciler) Run(ctx context.Context) {
	runtime.LockOSThread() // for Busy
	defer runtime.UnlockOSThread()
	failures, pause := 0, time.Duration(0)
	full := true
	for {
		if !sleep(ctx, pause) {
			return
		}
		if failures == 0 {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
		}
		if !sleep(ctx, r.rest()) {
			return
		}
		before := r.options.Busy()
		pass, looked := r.pass(ctx, r.take(), full)
		switch {
		case ctx.Err() != nil:
			return
		case pass.Err != nil:
			failures++
			pause = min(retryMin<<min(failures-1, 16), retryMax)
		default:
			failures, pause = 0, restFactor*(r.options.Busy()-before)
		}
		full = pass.Err != nil
		if looked {
			r.options.Done(pass)
		}
	}
}

// sleep is false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// pass does what there is to do; looked is false when there was nothing.
func (r *Reconciler) pass(ctx context.Context, written []Written, full bool) (p Pass, looked bool) {
	start := time.Now()
	var changes []service.Change
	for _, w := range written {
		changed, everything := r.follow(inForce(w, r.known))
		changes = append(changes, changed...)
		full = full || everything || w.Repaired
	}
	tcpReset := r.options.TCPReset()
	filters := r.index.Everything(tcpReset)
	if !full {
		filters = r.index.Touched(changes, tcpReset)
	}
	p = Pass{Family: r.options.Family, Full: full, Reasons: map[Reason]int{}}
	if len(filters) > 0 {
		p.Err = r.sweep(ctx, filters, tcpReset, &p)
	}
	if p.Err == nil {
		r.index.Forget()
	}
	p.Duration = time.Since(start)
	return p, full || len(filters) > 0
}

// inForce is the Snapshot with the Services that were refused as they were before.
func inForce(w Written, before *service.Snapshot) *service.Snapshot {
	if len(w.Refused) == 0 {
		return w.Snapshot
	}
	if before == nil {
		before = &service.Snapshot{}
	}
	var put []*service.Service
	var gone []service.Name
	for _, name := range w.Refused {
		if old := before.Service(name); old != nil {
			put = append(put, old)
		} else {
			gone = append(gone, name)
		}
	}
	return w.Snapshot.With(w.Snapshot.Node, put, gone)
}

// follow brings the index up to date and returns what changed; everything is true
// where what all Services depend on did.
func (r *Reconciler) follow(s *service.Snapshot) (changes []service.Change, everything bool) {
	everything = r.known == nil || !r.known.Node.Equal(s.Node)
	for c := range s.Changes(r.known) {
		r.index.Change(c)
		changes = append(changes, c)
	}
	r.known = s
	return changes, everything
}

// sweep removes the flows that lead nowhere among those that the filters select.
func (r *Reconciler) sweep(ctx context.Context, filters []conntrack.Filter, tcpReset bool, p *Pass) error {
	local, err := r.options.LocalAddrs()
	if err != nil {
		return fmt.Errorf("conntrack: addresses of this node: %w", err)
	}
	nodePorts := NodePortsOf(r.known.Node, r.options.Family, local)
	var errs []error
	var stale []conntrack.Flow
	remove := func() {
		n, err := r.options.Table.Delete(stale)
		p.Removed += n
		errs = append(errs, err)
		stale = stale[:0]
	}
	for flow, err := range r.options.Table.Flows(ctx, filters...) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		p.Read++
		if reason := r.index.Judge(flow, nodePorts, tcpReset); reason != Leads {
			p.Reasons[reason]++
			if stale = append(stale, flow); len(stale) == batch {
				remove()
			}
		}
	}
	if len(stale) > 0 {
		remove()
	}
	return errors.Join(errs...)
}
