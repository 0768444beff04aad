package dataplane

import (
	"cmp"
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
	for name, c := range w.unchecked {
		_, lost := compose(c, func(owner string) part { p, _ := c.parts.get(owner); return p })
		w.noteConflicts(name, lost)
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

func (w *Want) noteConflicts(name string, list []Conflict) {
	delete(w.unchecked, name)
	if len(list) == 0 {
		delete(w.conflicts, name)
	} else {
		w.conflicts[name] = list
	}
}

// wanted and believed are two views of a container: what is asked for, with
// held owners as the kernel has them, and what the kernel is believed to have.
func (c *container) wanted(held func(string) bool) func(string) part {
	return func(owner string) part {
		if c.before.len() > 0 && held(owner) {
			if p, ok := c.before.get(owner); ok {
				return p
			}
		}
		p, _ := c.parts.get(owner)
		return p
	}
}

func (c *container) believed(owner string) part {
	if p, ok := c.before.get(owner); ok {
		return p
	}
	p, _ := c.parts.get(owner)
	return p
}

type claim struct {
	object *Object
	owner  *Owner
}

// compose merges the parts that view selects: objects in key order, claims
// included, one for each key, and who lost.
func compose(c *container, view func(owner string) part) ([]Object, []Conflict) {
	var parts []part
	collect := func(owner string) {
		if p := view(owner); !p.empty() {
			parts = append(parts, p)
		}
	}
	c.parts.each(func(owner string, _ part) { collect(owner) })
	c.before.each(func(owner string, _ part) {
		if _, twice := c.parts.get(owner); !twice {
			collect(owner)
		}
	})
	switch len(parts) {
	case 0:
		return nil, nil
	case 1:
		return parts[0].objects(), nil
	}
	return resolve(parts)
}

// resolve finds the winner of each key first and sorts what is left: many owners
// may ask for one key.
func resolve(parts []part) ([]Object, []Conflict) {
	n := 0
	for _, p := range parts {
		n = max(n, int(p.to-p.from))
	}
	type inContainer struct {
		rank int
		name string
	}
	winners := make(map[inContainer]int32, n)
	claims := make([]claim, 0, n)
	contended := false
	for _, p := range parts {
		objects := p.objects()
		for i := range objects {
			o := &objects[i]
			key := inContainer{o.Key.Rank, o.Key.Name}
			at, there := winners[key]
			if !there {
				winners[key] = int32(len(claims))
				claims = append(claims, claim{o, &p.of.owner})
				continue
			}
			contended = contended || claims[at].object.Body != o.Body
			claims[at] = better(claims[at], claim{o, &p.of.owner})
		}
	}
	var lost []Conflict
	if contended {
		for _, p := range parts {
			for _, o := range p.objects() {
				w := claims[winners[inContainer{o.Key.Rank, o.Key.Name}]]
				if o.Body != w.object.Body {
					lost = append(lost, Conflict{o.Key, *w.owner, p.of.owner})
				}
			}
		}
		slices.SortFunc(lost, func(a, b Conflict) int { return cmp.Or(a.Key.Compare(b.Key), a.Loser.Compare(b.Loser)) })
	}
	slices.SortFunc(claims, func(a, b claim) int { return compareInContainer(a.object.Key, b.object.Key) })
	out := make([]Object, len(claims))
	for i, c := range claims {
		out[i] = *c.object
	}
	return out, lost
}

// ownerOf returns who is behind an object of the view, false for nobody.
func ownerOf(c *container, view func(string) part, k Key) (Owner, bool) {
	var best *Owner
	look := func(owner string, _ part) {
		p := view(owner)
		_, found := slices.BinarySearchFunc(p.objects(), k, func(o Object, k Key) int { return o.Key.Compare(k) })
		if found && (best == nil || p.of.owner.Compare(*best) < 0) {
			best = &p.of.owner
		}
	}
	c.parts.each(look)
	c.before.each(look)
	if best == nil {
		return Owner{}, false
	}
	return *best, true
}
