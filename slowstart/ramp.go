package slowstart

import (
	"sync"
	"time"

	"portolan/service"
)

// Ramp hands Snapshots on, and hands on a new one when a fresh endpoint has come a
// step further. Its methods are safe for use by several goroutines.
type Ramp struct {
	publish func(*service.Snapshot)

	mu      sync.Mutex
	stages  stages
	timer   *time.Timer
	stopped bool
}

// New returns a Ramp that hands on to publish, one Snapshot after the other.
func New(publish func(*service.Snapshot)) *Ramp { return &Ramp{publish: publish} }

// Publish takes the newest Snapshot.
func (r *Ramp) Publish(s *service.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hand(s)
}

// Stop ends what Publish began; nothing is handed on any more.
func (r *Ramp) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

// hand publishes the newest Snapshot with the shares of now, and comes back when one of them
// grows.
func (r *Ramp) hand(s *service.Snapshot) {
	if r.stopped {
		return
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	now := time.Now()
	out, due := r.stages.next(s, now)
	if !due.IsZero() {
		r.timer = time.AfterFunc(due.Sub(now), func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.hand(r.stages.in)
		})
	}
	r.publish(out)
}
