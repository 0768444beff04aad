package dataplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Notice says that somebody else changed something: look again.
type Notice struct {
	// By names the program that did it, as far as the kernel tells; empty else.
	By string
	// Urgent: something of ours is gone, or may be.
	Urgent bool
	// Glance is not nil when a look at a few things has shown that something is gone.
	Glance *Glance
}

// Glance is what a look found whose cost does not grow with the number of
// Services: enough to write what is missing, not enough to say that nothing else
// is.
type Glance struct {
	// Seen is all that is left of ours in the containers that it names, as in an
	// observation.
	Seen []Object
	// Emptied are the beginnings of the names of containers of which nothing is left
	// but what Seen says.
	Emptied []string
}

// And merges two Notices; n is the older one.
func (n Notice) And(later Notice) Notice {
	out := Notice{By: later.By, Urgent: n.Urgent || later.Urgent, Glance: later.Glance}
	if out.By == "" {
		out.By = n.By
	}
	if out.Glance == nil {
		out.Glance = n.Glance
	}
	return out
}

// Tell puts a Notice into a channel with room for one, where it joins the one that
// waits.
func Tell(notices chan Notice, n Notice) {
	for {
		select {
		case notices <- n:
			return
		default:
		}
		select {
		case waiting := <-notices:
			n = waiting.And(n)
		default: // somebody was faster
		}
	}
}

// Damage is what was there and is not, or is there and is not ours, though nothing
// had to be written: somebody else did it.
type Damage struct {
	Containers       int // that are not as they were
	Missing, Foreign int // lines in them; one that was changed is both
	// Lines are the first few of them, each with its container.
	Lines []string
}

// fewLines is how many lines of a Damage are told.
const fewLines = 3

// None tells that nothing was damaged.
func (d Damage) None() bool { return d.Containers == 0 }

// damageOf tells what somebody else did to the containers of a plan that comes from
// a look, but for those that had to be written anyway.
func (w *Want) damageOf(p Plan) (d Damage) {
	for _, c := range p.Changes {
		if known := w.containers[c.Container]; known != nil && known.dirty {
			continue
		}
		d.Containers++
		d.Missing += len(c.Created) + len(c.Replaced)
		d.Foreign += len(c.Deleted) + len(c.Replaced)
		d.note(c)
	}
	return d
}

// note adds the first few lines of a change.
func (d *Damage) note(c Change) {
	add := func(sign string, o Object) {
		if len(d.Lines) < fewLines {
			d.Lines = append(d.Lines, c.Container+" "+sign+" "+o.Body)
		}
	}
	for _, o := range c.Created {
		add("-", o)
	}
	for _, r := range c.Replaced {
		add("-", r.New)
	}
	for _, o := range c.Deleted {
		add("+", o)
	}
	if len(c.Created)+len(c.Replaced)+len(c.Deleted) == 0 && len(d.Lines) < fewLines {
		d.Lines = append(d.Lines, c.Container)
	}
}

// Repair writes what a Glance says is missing, without looking at the rest. The
// next write begins with a full look.
func (s *Sync) Repair(ctx context.Context, g Glance) (Report, error) {
	if !s.known || s.failed {
		return s.Reconcile(ctx)
	}
	r := Report{Rejected: s.rejected()}
	plan := g.plan(&s.want, s.isHeld)
	r.Damage = s.want.damageOf(plan)
	s.stale = true
	if plan.Empty() {
		return r, nil
	}
	r.Writes++
	if err := s.kernel.Apply(context.WithoutCancel(ctx), plan); err != nil {
		s.failed = true
		return r, fmt.Errorf("dataplane: repair: %w", err)
	}
	r.add(plan)
	return r, nil
}

// plan compares what was seen with what is wanted.
func (g Glance) plan(w *Want, held func(string) bool) Plan {
	c := comparison{want: w, held: held, seen: map[string]sight{}}
	for _, o := range g.Seen {
		c.see(o)
	}
	c.finish()
	c.rest(func(container string) bool {
		return slices.ContainsFunc(g.Emptied, func(begin string) bool { return strings.HasPrefix(container, begin) })
	})
	return c.sorted()
}
