package dataplane

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Fake is a Kernel in memory. It keeps to the contract of Kernel, except where
// its fields say otherwise, and checks that plans do too.
type Fake struct {
	// Refuse is asked about every plan. With its error Apply writes the longest
	// beginning of the plan that is not refused, but at most half of it, as a
	// kernel with several tables does.
	Refuse func(Plan) error
	// Unreadable is returned by Observe when set.
	Unreadable error
	// Applied and Observed count the calls.
	Applied, Observed int

	containers map[string][]Object
	keyed      map[string]bool
	disturbed  bool // since the last Observe, so that plans may be wrong
	changed    chan Notice
}

// Observe yields a claim for each container, then the lines.
func (f *Fake) Observe(context.Context) iter.Seq2[Object, error] {
	f.Observed++
	f.disturbed = false
	return func(yield func(Object, error) bool) {
		if f.Unreadable != nil {
			yield(Object{}, f.Unreadable)
			return
		}
		names := slices.Sorted(maps.Keys(f.containers))
		for _, name := range names {
			rank := 0
			if f.keyed[name] {
				rank = Keyed
			}
			if !yield(Object{Key: Key{Container: name, Rank: rank}}, nil) {
				return
			}
		}
		for _, name := range names {
			for i, o := range f.containers[name] {
				if o.Key.Rank >= 0 {
					o.Key = Key{Container: name, Rank: i}
				}
				if !yield(o, nil) {
					return
				}
			}
		}
	}
}

// Apply writes the plan. It panics when the plan contradicts what is there,
// since that is a bug of the one who made it.
func (f *Fake) Apply(_ context.Context, p Plan) error {
	f.Applied++
	if f.containers == nil {
		f.containers = map[string][]Object{}
	}
	if f.keyed == nil {
		f.keyed = map[string]bool{}
	}
	changes := p.Changes
	var err error
	if f.Refuse != nil {
		if err = f.Refuse(p); err != nil {
			for n := len(changes) / 2; ; n-- {
				if changes = p.Changes[:n]; n == 0 || f.Refuse(Plan{Changes: changes}) == nil {
					break
				}
			}
		}
	}
	for _, c := range changes {
		f.apply(c)
	}
	return err
}

// apply changes one container as a kernel would, and panics where the plan does not fit: who
// made it is wrong.
func (f *Fake) apply(c Change) {
	here, exists := f.containers[c.Container]
	if exists != c.Exists && !c.Keyed && !f.disturbed {
		panic(fmt.Sprintf("dataplane: fake: plan takes %s to exist: %v", c.Container, c.Exists))
	}
	switch {
	case c.Remove:
		delete(f.containers, c.Container)
	case c.Keyed:
		f.keyed[c.Container] = true
		f.containers[c.Container] = edit(here, c)
	default:
		f.containers[c.Container] = slices.Clone(c.Lines)
	}
}

// edit changes lines one by one, as in a container that is shared.
func edit(here []Object, c Change) []Object {
	for _, o := range c.Deleted {
		i := slices.Index(here, o)
		if i < 0 {
			panic(fmt.Sprintf("dataplane: fake: plan deletes what is not in %s: %s", c.Container, o.Body))
		}
		here = slices.Delete(slices.Clone(here), i, i+1)
	}
	here = slices.Clone(here)
	for _, r := range c.Replaced {
		here[slices.Index(here, r.Old)] = r.New
	}
	return append(here, c.Created...)
}

// Changes returns a channel on which Disturb sends.
func (f *Fake) Changes(context.Context) <-chan Notice {
	if f.changed == nil {
		f.changed = make(chan Notice, 1)
	}
	return f.changed
}

// Disturb lets somebody else change the content of a container; nil removes it.
func (f *Fake) Disturb(container string, bodies []string) {
	if f.containers == nil {
		f.containers = map[string][]Object{}
	}
	f.disturbed = true
	delete(f.containers, container)
	if bodies != nil {
		f.containers[container] = []Object{}
	}
	for i, b := range bodies {
		f.containers[container] = append(f.containers[container], Object{Key{Container: container, Rank: i}, b})
	}
	select {
	case f.changed <- Notice{}:
	default:
	}
}

// Content returns the bodies of every container.
func (f *Fake) Content() map[string][]string {
	out := map[string][]string{}
	for name, objects := range f.containers {
		out[name] = []string{}
		for _, o := range objects {
			out[name] = append(out[name], o.Body)
		}
	}
	return out
}
