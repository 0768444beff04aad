package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// loop drives one family.
type loop struct {
	family  service.Family
	backend Backend
	options Options
	log     *slog.Logger
	newest  *atomic.Pointer[service.Snapshot]
	wake    chan struct{}
	written atomic.Pointer[service.Snapshot] // the last that was written; nil before the first

	sync       *dataplane.Sync
	rendered   *service.Snapshot      // what sync was told last
	unrendered map[service.Name]error // Services that could not be rendered, as they are now
	full       bool                   // the next write starts with a full look
	nextFull   time.Time              // when a full look is due though nothing happened
	failures   int                    // writes in a row that failed
	refusals   int                    // full looks in a row with Services that the kernel refused
	lastLook   time.Duration          // how long the last full look took, if it found nothing to do
	troubles   map[trouble]string     // that were told, with their texts
	journal    *Journal
}

func newLoop(f Family, options Options, newest *atomic.Pointer[service.Snapshot], journal *Journal) *loop {
	return &loop{
		family:     f.Family,
		backend:    f.Backend,
		options:    options,
		log:        options.Log.With("family", f.Family.String()),
		newest:     newest,
		wake:       make(chan struct{}, 1),
		sync:       dataplane.NewSync(f.Backend),
		unrendered: map[service.Name]error{},
		full:       true,
		troubles:   map[trouble]string{},
		journal:    journal,
	}
}

func (l *loop) run(ctx context.Context) {
	select { // nothing is known, so nothing is written
	case <-ctx.Done():
		return
	case <-l.wake:
	}
	changes := l.backend.Changes(ctx)
	for {
		l.step(ctx)
		if !l.wait(ctx, changes) {
			return
		}
	}
}

// wait returns when the next write is due, or false when ctx ended. After a
// failure that is when the pause is over, whatever happens meanwhile.
func (l *loop) wait(ctx context.Context, changes <-chan struct{}) bool {
	if l.failures > 0 {
		return sleep(ctx, max(l.options.MinSyncPeriod, backoff(l.options.RetryMin, l.options.RetryMax, l.failures)))
	}
	if !sleep(ctx, l.options.MinSyncPeriod) {
		return false
	}
	due := time.NewTimer(time.Until(l.nextFull))
	defer due.Stop()
	// Neighbours that write all the time must not make us look all the time:
	// looks that find nothing take at most a tenth of the time.
	var looking <-chan struct{}
	rest := time.NewTimer(9 * l.lastLook)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-l.wake:
			return true
		case <-due.C:
			l.full = true
			return true
		case <-rest.C:
			looking = changes
		case _, ok := <-looking:
			if ok {
				l.full = true
				return true
			}
			looking = nil // nobody tells any more
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// backoff returns the pause after a number of failures in a row, at least 1.
func backoff(least, most time.Duration, failures int) time.Duration {
	d := least
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	return min(d, most)
}

// step renders what changed and writes what differs.
func (l *loop) step(ctx context.Context) {
	start := time.Now()
	snapshot := l.newest.Load()
	l.render(snapshot)
	full := l.full
	var report dataplane.Report
	var err error
	if full {
		report, err = l.sync.Reconcile(ctx)
	} else {
		report, err = l.sync.Apply(ctx)
	}
	if ctx.Err() != nil {
		return
	}
	repaired := 0
	if full && err == nil && l.refusals == 0 && l.written.Load() == snapshot { // nobody asked for anything new
		repaired = report.Created + report.Replaced + report.Deleted
	}
	if err == nil {
		l.written.Store(snapshot)
	}
	took := time.Since(start)
	l.plan(full, report, err, took)
	l.tell(Result{Family: l.family, Snapshot: snapshot, Full: full, Report: report,
		Refused: l.refused(report), Repaired: repaired, Duration: took, Err: err})
}

// plan decides what the next step has to do and when it is due at the latest.
// Only a failed write asks for a full look at once; Services that the kernel
// refused are tried again with one now and then, ever more rarely.
func (l *loop) plan(full bool, report dataplane.Report, err error, took time.Duration) {
	l.full = err != nil
	if err != nil {
		l.failures++
		return
	}
	l.failures, l.lastLook = 0, 0
	if !full {
		return
	}
	if report.Writes == 0 {
		l.lastLook = took
	}
	pause := l.options.FullPeriod
	if len(report.Rejected) > 0 {
		l.refusals++
		pause = backoff(l.options.RetryMax, l.options.FullPeriod, l.refusals)
	} else {
		l.refusals = 0
	}
	l.nextFull = time.Now().Add(pause)
}

// refused lists the Services that are not programmed as they ask.
func (l *loop) refused(report dataplane.Report) map[string]error {
	out := map[string]error{}
	for name, err := range l.unrendered {
		out[name.String()] = err
	}
	for _, r := range report.Rejected {
		out[r.Owner] = kernelRefusal{r.Err}
	}
	return out
}

func (l *loop) tell(r Result) {
	attrs := []any{"services", r.Snapshot.Len(), "full", r.Full, "created", r.Report.Created,
		"replaced", r.Report.Replaced, "deleted", r.Report.Deleted, "took", r.Duration}
	r.News = l.newsOf(r)
	l.logNews(r.News)
	for _, n := range r.News {
		l.journal.Note(time.Now(), n)
	}
	switch {
	case r.Err != nil:
		l.log.Error("sync failed, will be tried again", append(attrs, "failures", l.failures, "error", r.Err)...)
	case r.Report.Writes == 0:
		l.log.Debug("nothing to write", attrs...)
	default:
		l.log.Info("synced", attrs...)
	}
	if l.options.Synced != nil {
		l.options.Synced(r)
	}
}

// render tells the sync what the Snapshot asks for. A Service that cannot be
// rendered keeps what it had. Render is pure, so it is asked again only when the
// Service or the Node changes.
func (l *loop) render(s *service.Snapshot) {
	previous := l.rendered
	everything := previous == nil || !s.Node.Equal(previous.Node)
	for c := range s.Changes(previous) {
		if c.New == nil {
			l.sync.Remove(c.Old.Name.String())
			delete(l.unrendered, c.Old.Name)
		} else if !everything {
			l.renderService(s.Node, c.New)
		}
	}
	if everything {
		l.sync.Set(dataplane.Owner{}, l.backend.Base(s.Node))
		for svc := range s.All() {
			l.renderService(s.Node, svc)
		}
	}
	l.rendered = s
}

func (l *loop) renderService(node service.Node, svc *service.Service) {
	delete(l.unrendered, svc.Name)
	objects, err := l.backend.Render(node, svc)
	if err != nil {
		l.unrendered[svc.Name] = err
		return
	}
	l.sync.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
}
