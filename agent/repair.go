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

// look is a full look. It ends early with an error when it turns out meanwhile what
// is missing, which is then in the notice: it is faster to write that first.
func (l *loop) look(ctx context.Context, notices <-chan dataplane.Notice) (dataplane.Report, error) {
	looking, stop := context.WithCancel(ctx)
	defer stop()
	first := l.written.Load() == nil
	var listening sync.WaitGroup
	listening.Go(func() { // nobody else reads or writes the notice meanwhile
		for {
			select {
			case <-looking.Done():
				return
			case n := <-notices:
				l.next.note(n)
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

// rival says of programs that are known what they may be there for.
var rival = map[string]string{
	"portolan":   ", another one: a cleanup, or a proxy, of which only one may run on a node",
	"kube-proxy": ": only one Service proxy may run on a node",
}

// damageText says what others did, and who did something last.
func damageText(r Result) string {
	d := r.Report.Damage
	who := "somebody else"
	if r.By != "" {
		who += " (the last was " + strconv.Quote(r.By) + rival[r.By] + ")"
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
