package agent

import (
	"slices"
	"time"

	"portolan/dataplane"
)

// repairPeriod is the least time from the end of a write to a repair, and more after
// a write that took long: two who undo each other's work must not do only that.
const repairPeriod = 200 * time.Millisecond

// repairPause is how long there is no repair after a write: no longer than between two
// writes anyway, but for a repair that somebody undoes.
func repairPause(minSync time.Duration, r Result) time.Duration {
	if r.Report.Damage.Containers > 0 {
		minSync = max(minSync, repairPeriod)
	}
	return min(minSync, max(repairPeriod, 4*r.Duration))
}

// refusedPause is after what time Services that the kernel refused are tried again for
// the first time: others may have removed what they lean on.
const refusedPause = time.Second

// schedule decides when a loop writes though no Snapshot asks for it, and when it looks
// at the kernel in full before it writes. It is told what happened, and reads no clock.
//
// A full look is owed at start, after a failed write, and after a glance. Beside that
// there is one from time to time, soon after the kernel refused a Service, and when
// others did something: at once where something of ours may be missing, else so seldom
// that looks that find nothing take at most a tenth of the time. A neighbour who writes
// all the time does not make us look all the time.
type schedule struct {
	options   Options
	owed      bool             // a full look, whatever the time
	nextFull  time.Time        // when there is one though nothing happened
	rest      time.Time        // until when what others did leads to none, unless it is urgent
	mayRepair time.Time        // until when there is neither look nor repair
	noticed   bool             // others did something since the last full look
	notice    dataplane.Notice // what they did, as far as that is known
	failures  int              // writes in a row that failed
	held      map[string]bool  // owners that the kernel refused at the last write
	refusals  int              // tries since the kernel refused an owner that was not held
}

// note remembers what others did.
func (s *schedule) note(n dataplane.Notice) {
	s.noticed, s.notice = true, s.notice.And(n)
}

// lookDue tells whether the next write begins with a full look.
func (s *schedule) lookDue(now time.Time) bool {
	urgent := s.notice.Urgent || s.notice.Glance != nil
	return s.owed || !now.Before(s.nextFull) || s.noticed && (urgent || !now.Before(s.rest))
}

// due is when the next write starts though no Snapshot asks for it.
func (s *schedule) due(now time.Time) time.Time {
	at := s.nextFull
	switch {
	case s.lookDue(now):
		at = s.mayRepair
	case s.noticed && s.rest.Before(at):
		at = s.rest
	}
	if at.Before(s.mayRepair) {
		return s.mayRepair
	}
	return at
}

// pause is how long to wait after a failed write, whatever happens meanwhile.
func (s *schedule) pause() time.Duration {
	return max(s.options.MinSyncPeriod, backoff(s.options.RetryMin, s.options.RetryMax, s.failures))
}

// wrote plans what comes after a write. look is how long the last full look took.
// Only a failed write asks for a full look at once; Services that the kernel refused
// are tried again with one, soon and then ever more rarely.
func (s *schedule) wrote(now time.Time, r Result, look time.Duration) {
	s.mayRepair = now.Add(repairPause(s.options.MinSyncPeriod, r))
	s.owed = r.Err != nil
	if s.owed {
		s.failures++
		return
	}
	s.failures = 0
	if another := s.hold(r.Report.Rejected); another && !r.Full {
		s.refusals = 1
		if soon := now.Add(refusedPause); soon.Before(s.nextFull) {
			s.nextFull = soon
		}
	}
	if !r.Full {
		return
	}
	s.rest = now.Add(look)
	if r.Report.Damage.None() {
		s.rest = now.Add(9 * look)
	}
	if len(r.Report.Rejected) == 0 {
		s.refusals = 0
		s.nextFull = now.Add(s.options.FullPeriod)
		return
	}
	pause := refusedPause
	if s.refusals > 0 {
		pause = backoff(s.options.RetryMax, s.options.FullPeriod, s.refusals)
	}
	s.refusals++
	s.nextFull = now.Add(pause)
}

// hold remembers whom the kernel refused, and tells whether there is one that it did not
// refuse before.
func (s *schedule) hold(rejected []dataplane.Rejection) (another bool) {
	another = slices.ContainsFunc(rejected, func(r dataplane.Rejection) bool { return !s.held[r.Owner] })
	s.held = map[string]bool{}
	for _, r := range rejected {
		s.held[r.Owner] = true
	}
	return another
}

// backoff returns the pause after a number of failures in a row, at least 1.
func backoff(least, most time.Duration, failures int) time.Duration {
	d := least
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	return min(d, most)
}
