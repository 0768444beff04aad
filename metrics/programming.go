package metrics

import (
	"slices"
	"time"

	"portolan/service"
)

// programmed returns how long the changes of endpoints took that a write brought:
// the times of triggers that were not known at the write before, up to now. Those
// before the start of this process are none of its doing.
func programmed(before, after *service.Snapshot, started, now time.Time) []time.Duration {
	var out []time.Duration
	for c := range after.Changes(before) {
		if c.New == nil {
			continue
		}
		for _, t := range c.New.Triggers {
			known := c.Old != nil && slices.ContainsFunc(c.Old.Triggers, t.Equal)
			if !known && t.After(started) && !t.After(now) {
				out = append(out, now.Sub(t))
			}
		}
	}
	return out
}
