package agent

import "time"

// pace says when the next look is due.
type pace struct {
	min, max, full time.Duration
	pause          time.Duration // after the next failure
	timer          *time.Timer
	quiet          *time.Timer // until it fires, changes by others wait; nil when none do
}

// rest is how many times as long as a look took the next one that others cause
// waits, so that those who change much do not keep this node busy.
const rest = 10

func newPace(o Options) *pace {
	return &pace{min: o.RetryMin, max: o.RetryMax, full: o.Full, pause: o.RetryMin, timer: time.NewTimer(o.Full)}
}

// look is changed, but nil while at rest.
func (p *pace) look(changed <-chan struct{}) <-chan struct{} {
	if p.quiet != nil {
		return nil
	}
	return changed
}

// over fires at the end of a rest; wake has to be called then.
func (p *pace) over() <-chan time.Time {
	if p.quiet == nil {
		return nil
	}
	return p.quiet.C
}

func (p *pace) wake() { p.quiet = nil }

// due fires when a look is due without any change.
func (p *pace) due() <-chan time.Time { return p.timer.C }

// done sets the next times after a look that began then.
func (p *pace) done(began time.Time, err error) {
	next := p.full
	if err != nil {
		next = p.pause
		p.pause = min(2*p.pause, p.max)
	} else {
		p.pause = p.min
	}
	p.timer.Reset(next)
	p.quiet = time.NewTimer(rest * time.Since(began))
}
