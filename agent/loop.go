package agent

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// loop drives one family: it waits, renders what changed since the Snapshot before, and
// writes. loop.go does it, schedule.go says when, and repair.go looks at what others did.
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
	next       schedule
	rendered   *service.Snapshot      // what sync was told last
	unrendered map[service.Name]error // Services that could not be rendered, as they are now
	troubles   map[trouble]string     // that were told, with their texts
	journal    *Journal
	said       bool // that the rules are in force, at Info
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
		next:       schedule{options: options, owed: true},
		troubles:   map[trouble]string{},
		journal:    journal,
	}
}

// run waits for a first Snapshot and works until ctx ends.
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
// failure that is when the pause is over, whatever happens meanwhile. There is no timer
// for what is not due: each wakes the process, and a storm is many waits.
func (l *loop) wait(ctx context.Context, notices <-chan dataplane.Notice) bool {
	if l.next.failures > 0 {
		return sleep(ctx, l.next.pause())
	}
	start := time.Now()
	mayWrite := start.Add(l.options.MinSyncPeriod)
	timer := time.NewTimer(time.Until(l.next.due(start)))
	defer timer.Stop()
	for changed := false; ; {
		select {
		case <-ctx.Done():
			return false
		case n := <-notices:
			l.next.note(n)
		case <-l.wake:
			changed = true
		case <-timer.C:
		}
		next := l.next.due(time.Now())
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

// sleep is false when ctx ended first.
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

// step renders what changed and writes what differs, in one of three ways: what a glance
// showed to be missing, whatever a full look finds, or what differs as far as is known.
func (l *loop) step(ctx context.Context, notices <-chan dataplane.Notice) {
	start := time.Now()
	snapshot := l.newest.Load()
	l.render(snapshot)
	result := Result{Family: l.family, Snapshot: snapshot, By: l.next.notice.By}
	glance := l.next.notice.Glance
	if l.written.Load() == nil {
		glance = nil // everything is missing
	}
	switch {
	case glance != nil:
		l.next.notice = dataplane.Notice{By: l.next.notice.By} // for the look that follows
		result.Report, result.Err = l.sync.Repair(ctx, *glance)
	case l.next.lookDue(start):
		l.next.noticed, l.next.notice = false, dataplane.Notice{}
		result.Full = true
		if result.Report, result.Err = l.look(ctx, notices); result.Err != nil && l.next.notice.Glance != nil {
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
	l.next.wrote(time.Now(), result, l.kernel.look)
	l.next.owed = l.next.owed || glance != nil
	l.tell(result)
	if result.Full {
		l.sync.Prepare()
	}
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

// tell logs a write in one line, and passes it on with what of it is news.
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
		l.log.Error("sync failed, will be tried again", append(attrs, "failures", l.next.failures, "error", r.Err)...)
	case r.Report.Writes == 0 && l.said:
		l.log.Debug("nothing to write", attrs...)
	case r.Report.Writes == 0: // after a restart: somebody waits for this
		l.log.Info("nothing to write: the rules that are there are what is wanted", attrs...)
	default:
		l.log.Info("synced", attrs...)
	}
	l.said = l.said || r.Err == nil
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

// renderAll renders everything, on all processors, and takes what is rendered while
// the rest is.
func (l *loop) renderAll(s *service.Snapshot) {
	const some = 64 // Services that change hands at once
	parts := slices.Collect(slices.Chunk(slices.Collect(s.All()), some))
	done := make([][]rendering, len(parts))
	rendered := make(chan int, len(parts))
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		go func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				for _, svc := range parts[i] {
					objects, err := l.backend.Render(s.Node, svc)
					done[i] = append(done[i], rendering{objects, err})
				}
				rendered <- i
			}
		}()
	}
	for range parts {
		i := <-rendered
		for j, svc := range parts[i] {
			l.take(svc, done[i][j])
		}
		done[i] = nil
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

// take has the sync want what came of rendering; what cannot be rendered is remembered,
// and the sync goes on wanting what it had.
func (l *loop) take(svc *service.Service, r rendering) {
	delete(l.unrendered, svc.Name)
	if r.err != nil {
		l.unrendered[svc.Name] = r.err
		return
	}
	l.sync.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, r.objects)
}
