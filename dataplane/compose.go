package dataplane

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// Conflict is a key that two owners ask for with different bodies.
type Conflict struct {
	Key           Key
	Winner, Loser Owner
}

// Conflicts lists the owners that do not get what they ask for, in the order of
// keys. A loser takes over when the winner stops asking.
func (w *Want) Conflicts() []Conflict {
	for _, c := range w.unchecked {
		parts := w.collect(c, all)
		w.noteConflicts(c, contestOf(parts).lost(parts))
	}
	var out []Conflict
	for _, list := range w.conflicts {
		out = append(out, list...)
	}
	slices.SortFunc(out, Conflict.compare)
	return out
}

func (c Conflict) compare(o Conflict) int {
	return cmp.Or(c.Key.Compare(o.Key), c.Loser.Compare(o.Loser), c.Winner.Compare(o.Winner))
}

// conflictNews compares two lists of Conflicts. A loser that now loses its key to
// another has not settled.
func conflictNews(old, now []Conflict) (lost, settled []Conflict) {
	for _, c := range now {
		if _, known := slices.BinarySearchFunc(old, c, Conflict.compare); !known {
			lost = append(lost, c)
		}
	}
	for _, c := range old {
		i, _ := slices.BinarySearchFunc(now, c.Key, func(o Conflict, k Key) int { return o.Key.Compare(k) })
		for i < len(now) && now[i].Key == c.Key && now[i].Loser.Name != c.Loser.Name {
			i++
		}
		if i == len(now) || now[i].Key != c.Key {
			settled = append(settled, c)
		}
	}
	return lost, settled
}

// noteConflicts keeps what was found of a container until it changes again.
func (w *Want) noteConflicts(c *container, list []Conflict) {
	w.trust(c)
	if len(list) == 0 {
		delete(w.conflicts, c.name)
	} else {
		w.conflicts[c.name] = list
	}
}

// view selects what counts of an owner; now is what it asks for, maybe nothing.
type view func(owner string, now part) part

// wanted and believed are two views of a container: what is asked for, with
// held owners as the kernel has them, and what the kernel is believed to have.
func (c *container) wanted(held func(string) bool) view {
	return func(owner string, now part) part {
		if held(owner) {
			if p, ok := c.instead(owner); ok {
				return p
			}
		}
		return now
	}
}

func (c *container) believed(owner string, now part) part {
	if p, ok := c.instead(owner); ok {
		return p
	}
	return now
}

// all is the view of what all owners ask for.
func all(_ string, now part) part { return now }

// compose merges the parts that v selects: objects in key order, claims
// included, one for each key.
func (w *Want) compose(c *container, v view) []Object {
	objects, _ := w.resolve(c, v, true)
	return objects
}

// resolve is compose, in key order or any, and tells whether somebody does not get what
// it asks for.
func (w *Want) resolve(c *container, v view, ordered bool) (objects []Object, conflict bool) {
	parts := w.collect(c, v)
	if len(parts) == 0 {
		return nil, false
	}
	if alike(parts) {
		return parts[0].objects(), false
	}
	contest := contestOf(parts)
	if ordered {
		contest.sort()
	}
	return contest.objects(), contest.real
}

// alike tells whether all parts are the same objects, as those of a container are
// that many owners share.
func alike(parts []part) bool {
	first := parts[0].objects()
	for _, p := range parts[1:] {
		if !slices.Equal(p.objects(), first) {
			return false
		}
	}
	return true
}

// collect lists the parts that v selects, in no order.
func (w *Want) collect(c *container, v view) []part {
	parts := make([]part, 0, c.parts.len()+c.before.len())
	c.parts.each(func(now part) {
		if p := v(now.of.owner.Name, now); !p.empty() {
			parts = append(parts, p)
		}
	})
	c.before.each(func(owner string, _ part) {
		if !w.partOf(owner, c).empty() {
			return // that was it
		}
		if p := v(owner, part{}); !p.empty() {
			parts = append(parts, p)
		}
	})
	return parts
}

type claim struct {
	object *Object
	owner  *Owner
}

// contest is the winner of each key.
type contest struct {
	winners []claim
	real    bool // some loser asks for something else than the winner
}

// contestOf finds the winners, in no order. It sorts nothing: at a first start there is
// a claim of each owner.
func contestOf(parts []part) contest {
	n := 0
	for _, p := range parts {
		n += int(p.to - p.from)
	}
	c := contest{winners: make([]claim, 0, n)}
	places := newKeyTable(n)
	for _, p := range parts {
		objects := p.objects()
		for i := range objects {
			now := claim{&objects[i], &p.of.owner}
			place := places.find(now.object.Key, c.winners)
			if *place == nowhere {
				*place = int32(len(c.winners))
				c.winners = append(c.winners, now)
				continue
			}
			best := &c.winners[*place]
			c.real = c.real || best.object.Body != now.object.Body
			*best = better(*best, now)
		}
	}
	return c
}

// sort puts the winners in the order of keys.
func (c contest) sort() {
	slices.SortFunc(c.winners, func(a, b claim) int { return compareInContainer(a.object.Key, b.object.Key) })
}

// keyTable finds the place of a key in a list of claims, without garbage for each.
type keyTable struct {
	seed   maphash.Seed
	places []int32 // as many as a power of two; a key is at its hash or after it
}

const nowhere = -1

// newKeyTable has room for n keys.
func newKeyTable(n int) keyTable {
	t := keyTable{maphash.MakeSeed(), make([]int32, 1<<bits.Len(uint(2*n)))}
	for i := range t.places {
		t.places[i] = nowhere
	}
	return t
}

// find returns where the place of the key in the list stands, or is to be noted.
func (t *keyTable) find(k Key, list []claim) *int32 {
	last := uint64(len(t.places) - 1)
	for at := hashInContainer(t.seed, k); ; at++ {
		place := &t.places[at&last]
		if *place == nowhere || compareInContainer(list[*place].object.Key, k) == 0 {
			return place
		}
	}
}

func (c contest) objects() []Object {
	out := make([]Object, len(c.winners))
	for i, w := range c.winners {
		out[i] = *w.object
	}
	return out
}

// lost lists who does not get what it asks for, in the order of keys.
func (c contest) lost(parts []part) []Conflict {
	if !c.real {
		return nil
	}
	c.sort()
	var lost []Conflict
	for _, p := range parts {
		for _, o := range p.objects() {
			i, _ := slices.BinarySearchFunc(c.winners, o.Key, func(w claim, k Key) int { return compareInContainer(w.object.Key, k) })
			if w := c.winners[i]; o.Body != w.object.Body {
				lost = append(lost, Conflict{o.Key, *w.owner, p.of.owner})
			}
		}
	}
	slices.SortFunc(lost, Conflict.compare)
	return lost
}

// ownerOf returns who is behind an object of the view, false for nobody.
func (w *Want) ownerOf(c *container, v view, k Key) (Owner, bool) {
	var best *Owner
	for _, p := range w.collect(c, v) {
		_, found := slices.BinarySearchFunc(p.objects(), k, func(o Object, k Key) int { return o.Key.Compare(k) })
		if found && (best == nil || p.of.owner.Compare(*best) < 0) {
			best = &p.of.owner
		}
	}
	if best == nil {
		return Owner{}, false
	}
	return *best, true
}
