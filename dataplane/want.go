package dataplane

import (
	"iter"
	"slices"
	"strings"
)

// Want is what all owners ask for, and what the kernel is believed to hold
// wherever that differs. The zero Want is empty and ready to use.
type Want struct {
	owners     map[string]*holding
	containers map[string]*container
	dirty      []*container          // those with something in before, and some that had
	conflicts  map[string][]Conflict // by container
	unchecked  map[string]*container // conflicts to be looked for again
}

// holding is all that one owner asks for, sorted by key. It never changes, but for the
// places of its parts in their containers, in the order of parts, which count while it is
// what the owner asks for.
type holding struct {
	owner   Owner
	objects []Object
	places  []int32
}

type container struct {
	name  string
	dirty bool // it has something in before
	// Whether it is in Want.dirty and Want.unchecked, so that these are not asked
	// for every owner.
	listed, unchecked bool
	// fresh: the kernel is believed to have nothing of it yet, whoever asks.
	fresh bool

	index  *index   // nil while there are few owners
	parts  partList // never an empty part
	before partSet  // believed to be in the kernel, by owner, where it differs; unless fresh
}

// differing calls f for every owner of whom the kernel is believed to have
// something else than is wanted, with that.
func (c *container) differing(f func(owner string, before part)) {
	if c.fresh {
		c.parts.each(func(p part) { f(p.of.owner.Name, part{}) })
		return
	}
	c.before.each(f)
}

// instead returns what the kernel is believed to have of an owner, where that is
// not what is wanted.
func (c *container) instead(owner string) (part, bool) {
	if c.fresh {
		return part{}, true
	}
	return c.before.get(owner)
}

// Set makes objects all that owner asks for. The objects may be in any order;
// of two with one key the first counts. Set keeps the slice, so the caller must
// not change it afterwards. It tells whether anything differs from before.
func (w *Want) Set(owner Owner, objects []Object) bool {
	if w.owners == nil {
		w.owners, w.containers = map[string]*holding{}, map[string]*container{}
		w.conflicts, w.unchecked = map[string][]Conflict{}, map[string]*container{}
	}
	now := newHolding(owner, normal(objects))
	old := w.owners[owner.Name]
	if old == nil {
		old = &holding{}
	}
	if len(objects) == 0 {
		delete(w.owners, owner.Name)
	} else {
		w.owners[owner.Name] = now
	}
	return w.exchange(owner.Name, old, now)
}

// Remove makes owner ask for nothing.
func (w *Want) Remove(owner string) bool { return w.Set(Owner{Name: owner}, nil) }

// exchange puts the parts of now in the place of those of old, walking both in
// the order of containers.
func (w *Want) exchange(owner string, old, now *holding) bool {
	changed := false
	a, b := old.first(), now.first()
	left := old.places
	for !a.empty() || !b.empty() {
		order := compareParts(a, b)
		x := exchanged{at: noPlace}
		if order <= 0 {
			x.old, x.at = a, left[0]
			a, left = a.next(), left[1:]
		}
		if order >= 0 {
			x.now = b
			b = b.next()
		}
		changed = w.place(owner, &x) || changed
		if order >= 0 {
			now.places = append(now.places, x.at)
		}
	}
	return changed
}

// exchanged is what one owner asks for in one container, before and now, either maybe
// nothing, and the place where it is.
type exchanged struct {
	old, now part
	at       int32
}

const noPlace = -1

func (x *exchanged) container() string {
	if x.now.empty() {
		return x.old.container()
	}
	return x.now.container()
}

// place puts now in the place of old, and remembers what the kernel holds.
func (w *Want) place(owner string, x *exchanged) bool {
	name := x.container()
	c := w.containers[name]
	if c == nil {
		c = &container{name: strings.Clone(name), fresh: true}
		w.containers[c.name] = c
	}
	old, now := x.old, x.now
	switch {
	case now.empty():
		c.parts.remove(x.at)
	case old.empty():
		x.at = c.parts.add(now)
	default:
		*c.parts.at(x.at) = now
	}
	contends := c.parts.len() > 1
	if c.index != nil {
		contends = c.index.exchange(old, now)
	}
	if old.equal(now) {
		return false
	}
	before, known := c.instead(owner)
	switch {
	case c.fresh:
	case !known && old.of == nil:
		c.before.put(part{of: now.of}) // nothing, of this owner
	case !known:
		c.before.put(old)
	case before.equal(now):
		c.before.remove(owner)
	}
	if contends || w.conflicts[c.name] != nil {
		w.doubt(c)
	}
	w.settle(c)
	return true
}

// partOf returns what an owner asks for in a container, empty for nothing.
func (w *Want) partOf(owner string, c *container) part {
	if h := w.owners[owner]; h != nil {
		return h.in(c.name)
	}
	return part{}
}

// doubt and trust say whether conflicts in c are to be looked for.
func (w *Want) doubt(c *container) {
	if !c.unchecked {
		w.unchecked[c.name], c.unchecked = c, true
	}
}

func (w *Want) trust(c *container) {
	if c.unchecked {
		delete(w.unchecked, c.name)
		c.unchecked = false
	}
}

// anyHeld tells whether some owner that changed is held.
func (c *container) anyHeld(held func(string) bool) (any bool) {
	c.differing(func(owner string, _ part) { any = any || held(owner) })
	return any
}

// settle files c as dirty or clean, and forgets it when nothing is left of it.
func (w *Want) settle(c *container) {
	if c.before.len() > 0 || (c.fresh && c.parts.len() > 0) {
		c.dirty = true
		if !c.listed {
			w.dirty, c.listed = append(w.dirty, c), true
		}
		return
	}
	c.dirty = false
	if c.parts.len() == 0 {
		delete(w.containers, c.name)
	}
}

// Taken tells Want that the kernel holds what is wanted, but for owners that
// are held back: for these it goes on holding what it did.
func (w *Want) Taken(held func(owner string) bool) {
	for c := range w.allDirty() {
		var kept partSet
		c.differing(func(owner string, p part) {
			if held(owner) {
				if p.of == nil { // nothing is in the kernel yet
					p.of = w.owners[owner]
					p.from, p.to = 0, 0
				}
				kept.put(p)
			}
		})
		c.before, c.fresh = kept, false
		w.settle(c)
	}
	still := slices.Collect(w.allDirty()) // no longer than it has to be: at first that is all there is
	for _, c := range w.dirty {
		c.listed = c.dirty
	}
	w.dirty = still
}

// allDirty yields the containers for which something has to be written, in no order.
func (w *Want) allDirty() iter.Seq[*container] {
	return func(yield func(*container) bool) {
		for _, c := range w.dirty {
			if c.dirty && !yield(c) {
				return
			}
		}
	}
}

// Dirty returns the owners for which something has to be written, sorted.
func (w *Want) Dirty() []string {
	seen := map[string]bool{}
	for c := range w.allDirty() {
		c.differing(func(owner string, _ part) { seen[owner] = true })
	}
	out := make([]string, 0, len(seen))
	for owner := range seen {
		out = append(out, owner)
	}
	slices.Sort(out)
	return out
}
