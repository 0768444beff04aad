package agent

import (
	"context"
	"errors"
	"fmt"
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

	sync     *dataplane.Sync
	rendered *service.Snapshot // what sync was told last
	full     bool              // the next write starts with a full look
	failures int               // in a row
	lastLook time.Duration     // how long the last full look took that found nothing to do
}

func newLoop(f Family, options Options, newest *atomic.Pointer[service.Snapshot]) *loop {
	return &loop{
		family:  f.Family,
		backend: f.Backend,
		options: options,
		log:     options.Log.With("family", f.Family.String()),
		newest:  newest,
		wake:    make(chan struct{}, 1),
		sync:    dataplane.NewSync(f.Backend),
		full:    true,
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
		err := l.step(ctx)
		if !l.wait(ctx, changes, err) {
			return
		}
	}
}

// wait returns when the next write is due, or false when ctx ended.
func (l *loop) wait(ctx context.Context, changes <-chan struct{}, err error) bool {
	if !sleep(ctx, l.options.MinSyncPeriod) {
		return false
	}
	timeout := l.options.FullPeriod
	if err != nil {
		l.full = true
		timeout = backoff(l.options.RetryMin, l.options.RetryMax, l.failures)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
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
		case <-timer.C:
			l.full = true
			return true
		case <-rest.C:
			looking = changes
		case _, ok := <-looking:
			if !ok {
				changes, looking = nil, nil
				continue
			}
			l.full = true
			return true
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
func (l *loop) step(ctx context.Context) error {
	start := time.Now()
	snapshot := l.newest.Load()
	renderErr := l.render(snapshot)
	full := l.full
	var report dataplane.Report
	var err error
	if full {
		report, err = l.sync.Reconcile(ctx)
	} else {
		report, err = l.sync.Apply(ctx)
	}
	for _, r := range report.Rejected {
		err = errors.Join(err, fmt.Errorf("agent: the kernel refused the rules of Service %s: %w", r.Owner, r.Err))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err = errors.Join(err, renderErr)
	l.full = false
	if err != nil {
		l.failures++
	} else {
		l.failures = 0
	}
	took := time.Since(start)
	l.lastLook = 0
	if full && report.Writes == 0 {
		l.lastLook = took
	}
	l.tell(Result{Family: l.family, Snapshot: snapshot, Full: full, Report: report, Duration: took, Err: err})
	return err
}

func (l *loop) tell(r Result) {
	attrs := []any{"services", r.Snapshot.Len(), "full", r.Full, "created", r.Report.Created,
		"replaced", r.Report.Replaced, "deleted", r.Report.Deleted, "took", r.Duration}
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
// rendered keeps what it had and is tried again with the next step.
func (l *loop) render(s *service.Snapshot) error {
	previous := l.rendered
	everything := previous == nil || !s.Node.Equal(previous.Node)
	var errs []error
	for c := range s.Changes(previous) {
		if c.New == nil {
			l.sync.Remove(c.Old.Name.String())
		} else if !everything {
			errs = append(errs, l.renderService(s.Node, c.New))
		}
	}
	if everything {
		l.sync.Set(dataplane.Owner{}, l.backend.Base(s.Node))
		for svc := range s.All() {
			errs = append(errs, l.renderService(s.Node, svc))
		}
	}
	err := errors.Join(errs...)
	if err == nil {
		l.rendered = s
	}
	return err
}

func (l *loop) renderService(node service.Node, svc *service.Service) error {
	objects, err := l.backend.Render(node, svc)
	if err != nil {
		return fmt.Errorf("agent: render Service %s: %w", svc.Name, err)
	}
	l.sync.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
	return nil
}
