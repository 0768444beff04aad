package agent

import (
	"errors"
	"testing"
	"time"

	"portolan/dataplane"
)

// After these writes, and with what others did since, the next one is due after so long,
// and begins with a full look.
func TestSchedule(t *testing.T) {
	start := time.Unix(1000, 0)
	quiet := Result{Full: true}
	damaged := Result{Full: true}
	damaged.Report.Damage.Missing, damaged.Report.Damage.Containers = 1, 1
	refused := Result{}
	refused.Report.Rejected = []dataplane.Rejection{{Owner: "ns/web"}}
	refusedAgain := refused
	refusedAgain.Full = true
	const look = 10 * time.Second // took the last full look
	for _, c := range []struct {
		what   string
		writes []Result
		notice *dataplane.Notice
		due    time.Duration
	}{
		{"nothing happens", []Result{quiet}, nil, time.Hour},
		{"others wrote what may be no harm", []Result{quiet}, &dataplane.Notice{}, 9 * look},
		{"others wrote again, after damage", []Result{damaged}, &dataplane.Notice{}, look},
		{"something of ours is gone", []Result{quiet}, &dataplane.Notice{Urgent: true}, repairPeriod},
		{"a write failed", []Result{quiet, {Err: errors.New("disk full")}}, nil, repairPeriod},
		{"the kernel refuses a Service", []Result{quiet, refused}, nil, refusedPause},
		{"and once more", []Result{quiet, refused, refusedAgain}, nil, 8 * time.Second},
		{"and no more", []Result{quiet, refused, quiet}, nil, time.Hour},
	} {
		s := schedule{options: options(), owed: true}
		if !s.lookDue(start) {
			t.Errorf("%s: no full look at the start", c.what)
		}
		for _, r := range c.writes {
			s.wrote(start, r, look)
		}
		if c.notice != nil {
			s.note(*c.notice)
		}
		if got := s.due(start).Sub(start); got != c.due {
			t.Errorf("%s: due after %v, want %v", c.what, got, c.due)
		}
		if at := s.due(start); s.lookDue(at.Add(-1)) && at.After(s.mayRepair) || !s.lookDue(at) {
			t.Errorf("%s: no full look then, or one before", c.what)
		}
	}
}
