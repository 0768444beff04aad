package agent

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// Backend writes one IP family of one proxy mode.
type Backend interface {
	dataplane.Kernel
	// Base returns what does not depend on any Service. It is pure.
	Base(service.Node) []dataplane.Object
	// Render returns what one Service asks for. It is pure: the same input gives
	// the same objects. Several goroutines call it at a time.
	Render(service.Node, *service.Service) ([]dataplane.Object, error)
}

// Family is one IP family and the backend that writes it.
type Family struct {
	Family  service.Family
	Backend Backend
}

// Options say how the agent paces itself and whom it tells.
type Options struct {
	// MinSyncPeriod is the least time from the end of a write to the start of
	// the next. The first change after a quiet time is written at once.
	MinSyncPeriod time.Duration
	// FullPeriod is the longest time between two full looks at the kernel.
	FullPeriod time.Duration
	// RetryMin is the pause after a first failure; it doubles up to RetryMax.
	// Services that the kernel refused are tried again after a second, then after
	// RetryMax, which doubles up to FullPeriod.
	RetryMin, RetryMax time.Duration

	Log    *slog.Logger
	Queued func(service.Family) // a change waits to be written; may be nil
	Synced func(Result)         // after every attempt to write; may be nil
}

// Result is one attempt to write one family.
type Result struct {
	Family service.Family
	// Snapshot is what is in force, unless Err says otherwise: the one before where
	// only what was missing was put back.
	Snapshot *service.Snapshot
	Full     bool // the kernel was looked at in full
	// By names the program that changed something meanwhile, as far as the kernel
	// tells; what it did, if anything to our rules, is in Report.Damage.
	By     string
	Report dataplane.Report
	// Refused are the Services that are not programmed as they ask, by
	// namespace/name; all others are, unless Err says otherwise.
	Refused map[string]error
	// News are what is worth telling people, each once.
	News     []News
	Duration time.Duration
	Err      error // nothing may be concluded about what was written
}

// Agent drives the families towards the newest Snapshot.
type Agent struct {
	options Options
	loops   []*loop
	newest  atomic.Pointer[service.Snapshot]

	mu      sync.Mutex
	changed Changes
	journal Journal
}

// New returns an Agent that writes nothing before the first Publish.
func New(families []Family, options Options) *Agent {
	a := &Agent{options: options}
	for _, f := range families {
		a.loops = append(a.loops, newLoop(f, options, &a.newest, &a.journal))
	}
	return a
}

// Publish makes s the newest Snapshot. It never blocks; Snapshots that were not
// taken up yet are passed over. A Snapshot without a change does nothing.
func (a *Agent) Publish(s *service.Snapshot) {
	before := a.newest.Swap(s)
	if before == s {
		return
	}
	a.mu.Lock()
	a.changed = a.changed.add(changesOf(before, s))
	a.mu.Unlock()
	for _, l := range a.loops {
		if a.options.Queued != nil {
			a.options.Queued(l.family)
		}
		select {
		case l.wake <- struct{}{}:
		default: // awake already
		}
	}
}

// Journal remembers what went wrong in all families.
func (a *Agent) Journal() *Journal { return &a.journal }

// Run works until ctx ends. A family that fails does not hold back the others.
func (a *Agent) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range a.loops {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
}
