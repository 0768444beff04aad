package main

import (
	"fmt"
	"sync"
	"time"

	"portolan/agent"
	"portolan/dataplane"
	"portolan/healthcheck"
	"portolan/service"
)

// driftLog remembers what others did to the rules. It hears of it from the looks that
// lead to a repair, and costs nothing where there is none.
type driftLog struct {
	mu       sync.Mutex
	families []service.Family
	drifts   map[service.Family]drift
}

// drift is what others did to the rules of one family.
type drift struct {
	times  int
	last   time.Time
	damage dataplane.Damage // the last
	open   time.Time        // since when it is not put right, zero if it is
}

// start says which families there are.
func (d *driftLog) start(families []service.Family) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.families, d.drifts = families, map[service.Family]drift{}
}

// note takes how an attempt to write went.
func (d *driftLog) note(now time.Time, r agent.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	x, known := d.drifts[r.Family]
	damaged := !r.Report.Damage.None()
	if d.drifts == nil || !damaged && !known {
		return
	}
	if damaged {
		x.times, x.last, x.damage = x.times+1, now, r.Report.Damage
	}
	switch {
	case r.Err == nil:
		x.open = time.Time{}
	case damaged && x.open.IsZero():
		x.open = now
	}
	d.drifts[r.Family] = x
}

// conditions are RulesIntact of each family.
func (d *driftLog) conditions() (out []healthcheck.Condition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.families {
		x := d.drifts[f]
		c := healthcheck.Condition{Type: healthcheck.RulesIntact, Family: f.String(), Status: "True", Message: "nobody else has changed the rules since the start"}
		if x.times > 0 {
			c.Message = fmt.Sprintf("others changed the rules %d times; the last, at %s (%s: %d, %s: %d), is put right",
				x.times, x.last.UTC().Format(time.RFC3339), agent.DriftMissing, x.damage.Missing, agent.DriftForeign, x.damage.Foreign)
		}
		if !x.open.IsZero() {
			since := x.open
			c.Status, c.Since = "False", &since
			c.Message = fmt.Sprintf("others changed the rules (%s: %d, %s: %d), and they could not be put right: writing fails",
				agent.DriftMissing, x.damage.Missing, agent.DriftForeign, x.damage.Foreign)
		}
		out = append(out, c)
	}
	return out
}
