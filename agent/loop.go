package agent

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"
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

	kernel     *stopwatch
	sync       *dataplane.Sync
	rendered   *service.Snapshot      // what sync was told last
	unrendered map[service.Name]error // Services that could not be rendered, as they are now
	full       bool                   // the next write starts with a full look
	nextFull   time.Time              // when a full look is due though nothing happened
	rest       time.Time              // until when what others did leads to no full look
	mayRepair  time.Time              // until when there is no repair, to pace those
	noticed    bool                   // others did something since the last full look
	notice     dataplane.Notice       // what they did, as far as that is known
	failures   int                    // writes in a row that failed
	held       map[string]bool        // owners that the kernel refused at the last write
	refusals   int                    // writes since the kernel refused another one: that, and full looks
	troubles   map[trouble]string     // that were told, with their texts
	journal    *Journal
}

func newLoop(f Family, options Options, newest *atomic.Pointer[service.Snapshot], journal *Journal) *loop {
	kernel := &stopwatch{Kernel: f.Backend}
	return &loop{
		family:     f.Family,
		backend:    f.Backend,
		options:    options,
		log:        options.Log.With("family", f.Family.String()),
		newest:     newest,
		wake:       make(chan struct{}, 1),
		kernel:     kernel,
		sync:       dataplane.NewSync(kernel),
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
	notices := l.backend.Changes(ctx)
	for {
		l.step(ctx, notices)
		if !l.wait(ctx, notices) {
			return
		}
	}
}

// wait returns when the next write is due, or false when ctx ended. After a
// failure that is when the pause is over, whatever happens meanwhile.
func (l *loop) wait(ctx context.Context, notices <-chan dataplane.Notice) bool {
	if l.failures > 0 {
		return sleep(ctx, max(l.options.MinSyncPeriod, backoff(l.options.RetryMin, l.options.RetryMax, l.failures)))
	}
	mayWrite := time.Now().Add(l.options.MinSyncPeriod)
	timer := time.NewTimer(time.Until(l.due()))
	defer timer.Stop()
	for changed := false; ; {
		select {
		case <-ctx.Done():
			return false
		case n := <-notices:
			l.note(n)
		case <-l.wake:
			changed = true
		case <-timer.C:
		}
		next := l.due()
		if changed && mayWrite.Before(next) {
			next = mayWrite
		}
		left := time.Until(next)
		if left <= 0 {
			return true
		}
		timer.Reset(left)
	}
}

// due is when the next write starts though no Snapshot asks for it. There is no timer
// for what is not due: each wakes the process, and a storm is many waits.
func (l *loop) due() time.Time {
	at := l.nextFull
	if !time.Now().Before(at) {
		l.full = true
	}
	switch {
	case l.damaged():
		at = l.mayRepair
	case l.noticed && l.rest.Before(at):
		at = l.rest
	}
	if at.Before(l.mayRepair) {
		return l.mayRepair
	}
	return at
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
func (l *loop) step(ctx context.Context, notices <-chan dataplane.Notice) {
	start := time.Now()
	snapshot := l.newest.Load()
	l.render(snapshot)
	result := Result{Family: l.family, Snapshot: snapshot, By: l.notice.By}
	glance := l.notice.Glance
	if l.written.Load() == nil {
		glance = nil // everything is missing
	}
	switch {
	case glance != nil:
		l.notice = dataplane.Notice{By: l.notice.By} // for the look that follows
		result.Report, result.Err = l.sync.Repair(ctx, *glance)
	case l.full:
		l.noticed, l.notice = false, dataplane.Notice{}
		result.Full = true
		if result.Report, result.Err = l.look(ctx, notices); result.Err != nil && l.notice.Glance != nil {
			return // to come back with that
		}
	default:
		result.Report, result.Err = l.sync.Apply(ctx)
	}
	if ctx.Err() != nil && result.Err != nil {
		return
	}
	switch {
	case glance != nil:
		result.Snapshot = l.written.Load() // of the newer one it is not known
	case result.Err == nil:
		l.written.Store(snapshot)
	}
	result.Duration = time.Since(start)
	result.Refused = l.refused(result.Report)
	l.mayRepair = time.Now().Add(min(l.options.MinSyncPeriod, max(repairPeriod, 4*result.Duration)))
	l.plan(result)
	l.full = l.full || glance != nil
	l.tell(result)
	if result.Full {
		l.sync.Prepare()
	}
}

// refusedPause is after what time Services that the kernel refused are tried again for
// the first time: others may have removed what they lean on.
const refusedPause = time.Second

// plan decides what the next step has to do and when it is due at the latest.
// Only a failed write asks for a full look at once; Services that the kernel
// refused are tried again with one, soon and then ever more rarely.
func (l *loop) plan(r Result) {
	l.full = r.Err != nil
	if l.full {
		l.failures++
		return
	}
	l.failures = 0
	now := time.Now()
	refused := len(r.Report.Rejected) > 0
	another := slices.ContainsFunc(r.Report.Rejected, func(one dataplane.Rejection) bool { return !l.held[one.Owner] })
	l.held = map[string]bool{}
	for _, one := range r.Report.Rejected {
		l.held[one.Owner] = true
	}
	if !r.Full {
		if another {
			l.refusals = 1
			if soon := now.Add(refusedPause); soon.Before(l.nextFull) {
				l.nextFull = soon
			}
		}
		return
	}
	if l.rest = now.Add(l.kernel.look); r.Report.Damage.None() {
		l.rest = now.Add(9 * l.kernel.look)
	}
	if !refused {
		l.refusals = 0
		l.nextFull = now.Add(l.options.FullPeriod)
		return
	}
	pause := refusedPause
	if l.refusals > 0 {
		pause = backoff(l.options.RetryMax, l.options.FullPeriod, l.refusals)
	}
	l.refusals++
	l.nextFull = now.Add(pause)
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
		l.renderAll(s)
	}
	l.rendered = s
}

// renderAll renders everything, on all processors.
func (l *loop) renderAll(s *service.Snapshot) {
	list := slices.Collect(s.All())
	done := make([]rendering, len(list))
	var wg sync.WaitGroup
	workers := min(runtime.GOMAXPROCS(0), len(list))
	for first := range workers {
		wg.Go(func() {
			for i := first; i < len(list); i += workers {
				done[i].objects, done[i].err = l.backend.Render(s.Node, list[i])
			}
		})
	}
	wg.Wait()
	for i, svc := range list {
		l.take(svc, done[i])
	}
}

// rendering is what came of rendering a Service.
type rendering struct {
	objects []dataplane.Object
	err     error
}

func (l *loop) renderService(node service.Node, svc *service.Service) {
	objects, err := l.backend.Render(node, svc)
	l.take(svc, rendering{objects, err})
}

func (l *loop) take(svc *service.Service, r rendering) {
	delete(l.unrendered, svc.Name)
	if r.err != nil {
		l.unrendered[svc.Name] = r.err
		return
	}
	l.sync.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, r.objects)
}
