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

// holding is all that one owner asks for, sorted by key. It never changes.
type holding struct {
	owner   Owner
	objects []Object
}

// part is the objects of one holding that lie in one container. The zero part
// is empty; another empty one has an owner all the same.
type part struct {
	of       *holding
	from, to int32
}

func (p part) objects() []Object {
	if p.of == nil {
		return nil
	}
	return p.of.objects[p.from:p.to]
}

func (p part) empty() bool { return p.from == p.to }

func (p part) equal(o part) bool {
	if p.empty() || o.empty() {
		return p.empty() && o.empty()
	}
	return p.of.owner.Compare(o.of.owner) == 0 && slices.Equal(p.objects(), o.objects())
}

type container struct {
	name  string
	dirty bool // it has something in before
	// Whether it is in Want.dirty and Want.unchecked, so that these are not asked
	// for every owner.
	listed, unchecked bool
	// fresh: the kernel is believed to have nothing of it yet, whoever asks.
	fresh bool

	index  *index  // nil while there are few owners
	parts  partSet // by owner; never an empty part
	before partSet // believed to be in the kernel, by owner, where it differs; unless fresh
}

// differing calls f for every owner of whom the kernel is believed to have
// something else than is wanted, with that.
func (c *container) differing(f func(owner string, before part)) {
	if c.fresh {
		c.parts.each(func(owner string, _ part) { f(owner, part{}) })
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

// partSet maps owners to parts, which say whose they are. Nearly every container has
// one owner, hence the place for one without a map; and there are very many
// containers, hence nothing beside.
type partSet struct {
	sole part
	more map[string]part
}

// has tells whether the owner's part is the one without a map.
func (s *partSet) has(owner string) bool { return s.sole.of != nil && s.sole.of.owner.Name == owner }

func (s *partSet) get(owner string) (part, bool) {
	if s.has(owner) {
		return s.sole, true
	}
	p, ok := s.more[owner]
	return p, ok
}

// put takes the part of an owner, in the place of the one before.
func (s *partSet) put(p part) {
	owner := p.of.owner.Name
	if s.sole.of == nil || s.has(owner) {
		if _, elsewhere := s.more[owner]; !elsewhere {
			s.sole = p
			return
		}
	}
	if s.more == nil {
		s.more = map[string]part{}
	}
	s.more[owner] = p
}

func (s *partSet) remove(owner string) {
	if s.has(owner) {
		s.sole = part{}
		return
	}
	delete(s.more, owner)
}

func (s *partSet) len() int {
	if s.sole.of != nil {
		return len(s.more) + 1
	}
	return len(s.more)
}

func (s *partSet) each(f func(owner string, p part)) {
	if s.sole.of != nil {
		f(s.sole.of.owner.Name, s.sole)
	}
	for owner, p := range s.more {
		f(owner, p)
	}
}

// Set makes objects all that owner asks for. The objects may be in any order;
// of two with one key the first counts. Set keeps the slice, so the caller must
// not change it afterwards. It tells whether anything differs from before.
func (w *Want) Set(owner Owner, objects []Object) bool {
	if w.owners == nil {
		w.owners, w.containers = map[string]*holding{}, map[string]*container{}
		w.conflicts, w.unchecked = map[string][]Conflict{}, map[string]*container{}
	}
	now := &holding{owner: owner, objects: normal(objects)}
	old := w.owners[owner.Name]
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
	a, b := firstPart(old), firstPart(now)
	for !a.empty() || !b.empty() {
		switch order := compareParts(a, b); {
		case order < 0:
			w.place(owner, a.container(), a, part{})
			a, changed = a.next(), true
		case order > 0:
			w.place(owner, b.container(), part{}, b)
			b, changed = b.next(), true
		default:
			changed = w.place(owner, b.container(), a, b) || changed
			a, b = a.next(), b.next()
		}
	}
	return changed
}

func firstPart(h *holding) part {
	if h == nil {
		return part{}
	}
	return part{of: h}.next()
}

func (p part) container() string { return p.of.objects[p.from].Key.Container }

// next returns the part after p, empty at the end.
func (p part) next() part {
	objects := p.of.objects
	p.from = p.to
	for int(p.to) < len(objects) && objects[p.to].Key.Container == objects[p.from].Key.Container {
		p.to++
	}
	return p
}

func compareParts(a, b part) int {
	switch {
	case a.empty():
		return 1
	case b.empty():
		return -1
	}
	return strings.Compare(a.container(), b.container())
}

// place puts now in the place of old, and remembers what the kernel holds.
func (w *Want) place(owner, name string, old, now part) bool {
	c := w.containers[name]
	if c == nil {
		c = &container{name: strings.Clone(name), fresh: true}
		w.containers[c.name] = c
	}
	if now.empty() {
		c.parts.remove(owner)
	} else {
		c.parts.put(now)
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
