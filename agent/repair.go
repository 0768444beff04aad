package agent

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"sync"
	"time"

	"portolan/dataplane"
)

// note remembers what others did.
func (l *loop) note(n dataplane.Notice) {
	l.noticed, l.notice = true, l.notice.And(n)
}

// repairPeriod is the least time from the end of a write to a repair, and more after
// a write that took long: two who undo each other's work must not do only that.
const repairPeriod = 200 * time.Millisecond

// damaged tells whether the kernel is to be looked at, though no Snapshot asks for
// it. Looks that find nothing take at most a tenth of the time, so that neighbours
// who write all the time do not make us look all the time; but where something may
// be missing there is a look at once.
func (l *loop) damaged() bool {
	urgent := l.notice.Urgent || l.notice.Glance != nil
	if l.noticed && (urgent || !time.Now().Before(l.rest)) {
		l.full = true
	}
	return l.full
}

// look is a full look. It ends early with an error when it turns out meanwhile what
// is missing, which is then in l.notice: it is faster to write that first.
func (l *loop) look(ctx context.Context, notices <-chan dataplane.Notice) (dataplane.Report, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	first := l.written.Load() == nil
	var listening sync.WaitGroup
	listening.Go(func() { // l.notice is its own meanwhile
		for {
			select {
			case <-looking.Done():
				return
			case n := <-notices:
				l.note(n)
				if n.Glance != nil && !first {
					stop()
				}
			}
		}
	})
	report, err := l.sync.Reconcile(looking)
	stop()
	listening.Wait()
	return report, err
}

// stopwatch is a Kernel that knows how long its last Observe took.
type stopwatch struct {
	dataplane.Kernel
	look time.Duration
}

// Observe is that of the Kernel.
func (s *stopwatch) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		start := time.Now()
		s.Kernel.Observe(ctx)(yield)
		s.look = time.Since(start)
	}
}

// The codes of what others do to rules, as a verification of them has them.
const (
	DriftMissing = "drift-missing" // something is not there any more
	DriftForeign = "drift-foreign" // something is there that nobody asks for
)

// damageText says what others did, and who did something last.
func damageText(r Result) string {
	d := r.Report.Damage
	who := "somebody else"
	if r.By != "" {
		who += " (the last was " + strconv.Quote(r.By) + ")"
	}
	text := fmt.Sprintf("%s changed %d chains or sets of %v: %d rules or elements were missing (%s), %d did not belong there (%s); they are put back",
		who, d.Containers, r.Family, d.Missing, DriftMissing, d.Foreign, DriftForeign)
	for _, line := range d.Lines {
		text += "; " + line[:min(len(line), lineBytes)]
	}
	return text
}

// lineBytes is how much of a rule is told: an Event holds 1024 bytes.
const lineBytes = 220
