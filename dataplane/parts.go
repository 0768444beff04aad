package dataplane

import (
	"slices"
	"strings"
)

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

// equal tells whether two parts ask for the same with the same precedence.
func (p part) equal(o part) bool {
	if p.empty() || o.empty() {
		return p.empty() && o.empty()
	}
	return p.of.owner.Compare(o.of.owner) == 0 && slices.Equal(p.objects(), o.objects())
}

func newHolding(owner Owner, objects []Object) *holding {
	h := &holding{owner: owner, objects: objects}
	n := 0
	for p := h.first(); !p.empty(); p = p.next() {
		n++
	}
	h.places = make([]int32, 0, n)
	return h
}

// first returns the part in the first container, empty when nothing is asked for.
func (h *holding) first() part { return part{of: h}.next() }

// in returns the part in a container, empty when there is none.
func (h *holding) in(container string) part {
	at, found := slices.BinarySearchFunc(h.objects, container, func(o Object, name string) int { return strings.Compare(o.Key.Container, name) })
	if !found {
		return part{}
	}
	return part{of: h, from: int32(at), to: int32(at)}.next()
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

// compareParts orders by container, with an empty part at the end.
func compareParts(a, b part) int {
	switch {
	case a.empty():
		return 1
	case b.empty():
		return -1
	}
	return strings.Compare(a.container(), b.container())
}

// moved tells the holding of a part its new place.
func (p part) moved(at int32) {
	i := 0
	for q := p.of.first(); q.from != p.from; q = q.next() {
		i++
	}
	p.of.places[i] = at
}

// partList is the parts of a container, each of another owner, whose holding has its
// place: so that what very many owners share takes no more than their parts, and finds
// one without a search. Nearly every container has one owner, hence the place for one
// without a list.
type partList struct {
	sole part
	more []part
}

func (l *partList) len() int {
	if l.sole.of == nil {
		return 0
	}
	return 1 + len(l.more)
}

func (l *partList) at(place int32) *part {
	if place == 0 {
		return &l.sole
	}
	return &l.more[place-1]
}

// add returns the place that the part has now.
func (l *partList) add(p part) int32 {
	if l.sole.of == nil {
		l.sole = p
		return 0
	}
	if len(l.more) == cap(l.more) { // append makes four times as much garbage on the way to many
		l.more = slices.Grow(l.more, len(l.more)+1)
	}
	l.more = append(l.more, p)
	return int32(len(l.more))
}

// remove has the last part take the place.
func (l *partList) remove(place int32) {
	last := l.at(int32(l.len() - 1))
	if to := l.at(place); to != last {
		*to = *last
		last.moved(place)
	}
	*last = part{}
	if n := len(l.more); n > 0 {
		l.more = l.more[:n-1]
	}
}

func (l *partList) each(f func(p part)) {
	if l.sole.of != nil {
		f(l.sole)
	}
	for _, p := range l.more {
		f(p)
	}
}

// partSet maps owners to parts, which say whose they are: some of them. Of nearly every
// container it is one at most, hence the place for one without a map; and there are very
// many containers, hence nothing beside.
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
