package dataplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Sync keeps one Kernel at what its owners want. There is one for each IP
// family. It is not safe for use by several goroutines.
type Sync struct {
	kernel Kernel
	want   Want
	// stale: what the kernel holds is not known (at first, and after an error),
	// so that the next write begins with an observation.
	stale bool
	// failed: the last write failed, so that nobody else is to blame for what a
	// look finds.
	failed bool
	// known: everything was written once, so that Want's belief of what the
	// kernel has holds for each owner.
	known bool
	// held are the owners whose latest objects the kernel refused, or that are
	// left out while the one at fault is looked for. The kernel keeps what it
	// has of them.
	held map[string]*Rejection
	kept map[string]*Rejection // containers that the kernel does not let go
	told []Conflict            // those in force at the last Report
}

// Report says what one Apply or Reconcile did.
type Report struct {
	Created, Replaced, Deleted int // lines
	Containers                 int // written or removed
	Writes                     int // calls of Kernel.Apply, refused ones too
	// Rejected are the owners that are not programmed as they ask, because the
	// kernel refuses it. They are tried again when they change and at every
	// Reconcile.
	Rejected []Rejection
	// Lost are the conflicts that began since the last Report: keys that their
	// loser does not get. Settled are those that ended since: the loser has the
	// key now, or asks for it no more. Sync.Conflicts has all that are in force.
	Lost, Settled []Conflict
	// Damage is what others did, as far as a full look or a Repair shows.
	Damage Damage
}

// Rejection is an owner held back because the kernel refused its objects. Owner
// is empty when the kernel does not let a container go that nobody asks for.
type Rejection struct {
	Owner string
	Key   Key // the object at fault, as far as it is known
	Err   error
}

// NewSync returns a Sync whose first write begins with an observation.
func NewSync(k Kernel) *Sync {
	return &Sync{kernel: k, stale: true, held: map[string]*Rejection{}, kept: map[string]*Rejection{}}
}

// Set makes objects all that the owner asks for; see Want.Set.
func (s *Sync) Set(owner Owner, objects []Object) {
	if s.want.Set(owner, objects) {
		delete(s.held, owner.Name)
	}
}

// Remove makes the owner ask for nothing.
func (s *Sync) Remove(owner string) {
	if s.want.Remove(owner) {
		delete(s.held, owner)
	}
}

// Conflicts lists the owners that do not get a key they ask for.
func (s *Sync) Conflicts() []Conflict { return s.want.Conflicts() }

// Plan returns what Apply would write, going by what the kernel is believed to
// hold: nothing, before the first write.
func (s *Sync) Plan() Plan { return s.want.Plan(s.isHeld) }

func (s *Sync) isHeld(owner string) bool { return s.held[owner] != nil }

// Apply writes what changed. It does not call the kernel when nothing did. An
// error means that some of it is not written; it is tried again by the next
// call.
func (s *Sync) Apply(ctx context.Context) (Report, error) {
	if s.stale {
		return s.Reconcile(ctx)
	}
	return s.write(ctx)
}

// Reconcile looks at all that the kernel holds and writes the differences.
func (s *Sync) Reconcile(ctx context.Context) (Report, error) {
	s.stale = true
	clear(s.held)
	clear(s.kept)
	return s.write(ctx)
}

// Diff observes the kernel and returns what Reconcile would write.
func (s *Sync) Diff(ctx context.Context) (Plan, error) {
	p, err := observe(ctx, s.kernel, &s.want, s.isHeld, false)
	for _, c := range p.Changes {
		if c.Keyed { // see comparison.wanted
			slices.SortFunc(c.Created, func(a, b Object) int { return a.Key.Compare(b.Key) })
		}
	}
	return p, err
}

// Prepare does ahead what the first change would have to do after all was written for
// the first time, for which it had to wait some 20 ms with 10,000 owners.
func (s *Sync) Prepare() { s.want.prepare() }

// write attempts it, holds back the owners at fault if the kernel refuses something, and tells
// which conflicts are news.
func (s *Sync) write(ctx context.Context) (Report, error) {
	var r Report
	err := s.attempt(ctx, &r)
	var refusal *Refusal
	if errors.As(err, &refusal) {
		err = s.holdBack(ctx, refusal, &r)
		if err == nil && !s.known {
			s.known, s.stale = true, true // what is left of those at fault goes now
			err = s.attempt(ctx, &r)
		}
	}
	r.Rejected = s.rejected()
	now := s.want.Conflicts()
	r.Lost, r.Settled = conflictNews(s.told, now)
	s.told = now
	if err != nil {
		return r, fmt.Errorf("dataplane: write: %w", err)
	}
	return r, nil
}

// rejected lists who is not programmed as it asks.
func (s *Sync) rejected() (out []Rejection) {
	for _, rejection := range s.held {
		out = append(out, *rejection)
	}
	for _, rejection := range s.kept {
		out = append(out, *rejection)
	}
	slices.SortFunc(out, func(a, b Rejection) int {
		if a.Owner != b.Owner {
			return Owner{Name: a.Owner}.Compare(Owner{Name: b.Owner})
		}
		return a.Key.Compare(b.Key)
	})
	return out
}

// attempt writes what is wanted of all owners that are not held.
func (s *Sync) attempt(ctx context.Context, r *Report) error {
	adopt := !s.known && len(s.held) > 0
	var plan Plan
	if s.stale || adopt {
		var err error
		if plan, err = observe(ctx, s.kernel, &s.want, s.isHeld, adopt); err != nil {
			return err
		}
	} else {
		plan = s.want.Plan(s.isHeld)
	}
	if s.stale && s.known && !s.failed && r.Damage.None() {
		r.Damage = s.want.damageOf(plan)
	}
	plan.Changes = slices.DeleteFunc(plan.Changes, func(c Change) bool { return c.Remove && s.kept[c.Container] != nil })
	if !plan.Empty() {
		if err := ctx.Err(); err != nil {
			return err
		}
		r.Writes++
		// What was begun is brought to its end: half of it may be no good state.
		if err := s.kernel.Apply(context.WithoutCancel(ctx), plan); err != nil {
			s.stale, s.failed = true, true
			return err
		}
		r.add(plan)
	}
	s.want.Taken(s.isHeld)
	s.known, s.stale, s.failed = s.known || !adopt, adopt, false
	return nil
}

func (r *Report) add(p Plan) {
	r.Containers += len(p.Changes)
	for _, c := range p.Changes {
		r.Created += len(c.Created)
		r.Replaced += len(c.Replaced)
		r.Deleted += len(c.Deleted)
	}
}
