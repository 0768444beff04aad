package nftables

import (
	"cmp"
	"slices"
	"sync"

	"portolan/dataplane"
)

// sheet collects the objects of one owner. All names and bodies of elements
// share one string, so that a Service costs few allocations.
type sheet struct {
	text  []byte
	lines []line
	// Shared with other owners, text and all.
	chains, sets []dataplane.Object
	order        []int32 // of chains, lines, sets
}

// line is where an object stands in the text of a sheet.
type line struct {
	container      string
	from, name, to int // of the text: the name, which begins the body, ends at name
}

// sheets are used again: rendering is otherwise mostly the growth of buffers.
var sheets = sync.Pool{New: func() any { return new(sheet) }}

func newSheet() *sheet {
	s := sheets.Get().(*sheet)
	s.text, s.lines, s.chains, s.sets = s.text[:0], s.lines[:0], s.chains[:0], s.sets[:0]
	return s
}

// element adds an element whose text is its name and what follows it.
func (s *sheet) element(container, name string, rest ...string) {
	s.open(container)
	s.text = append(s.text, name...)
	s.named()
	for _, r := range rest {
		s.text = append(s.text, r...)
	}
	s.close()
}

// open begins an element, whose text the caller goes on with in s.text: first the
// name, which named ends, and then the rest, which close ends.
func (s *sheet) open(container string) {
	s.lines = append(s.lines, line{container: container, from: len(s.text)})
}

func (s *sheet) named() { s.lines[len(s.lines)-1].name = len(s.text) }

func (s *sheet) close() { s.lines[len(s.lines)-1].to = len(s.text) }

// share adds what other owners ask for too.
func (s *sheet) share(what structure) {
	s.chains = append(s.chains, what.chains...)
	s.sets = append(s.sets, what.sets...)
}

// objects returns everything in key order, and ends the use of the sheet. It sorts
// numbers, since objects are large and full of pointers.
func (s *sheet) objects() []dataplane.Object {
	text := string(s.text)
	s.order = s.order[:0]
	for i := range len(s.chains) + len(s.lines) + len(s.sets) {
		s.order = append(s.order, int32(i))
	}
	byKey := func(a, b int32) int {
		if c := cmp.Compare(s.container(a), s.container(b)); c != 0 {
			return c
		}
		x, y := s.object(a, text), s.object(b, text)
		return cmp.Or(x.Key.Compare(y.Key), int(a-b))
	}
	if !slices.IsSortedFunc(s.order, byKey) {
		slices.SortFunc(s.order, byKey)
	}
	out := make([]dataplane.Object, 0, len(s.order))
	for _, i := range s.order {
		o := s.object(i, text)
		if n := len(out); n == 0 || out[n-1].Key != o.Key {
			out = append(out, o)
		}
	}
	s.end()
	return out
}

// container and object are about one of the objects, by its number: chains come
// first, then lines, then sets.
func (s *sheet) container(i int32) string {
	if n := int(i) - len(s.chains); n >= 0 && n < len(s.lines) {
		return s.lines[n].container
	}
	return s.object(i, "").Key.Container
}

func (s *sheet) object(i int32, text string) dataplane.Object {
	n := int(i)
	if n < len(s.chains) {
		return s.chains[n]
	}
	if n -= len(s.chains); n < len(s.lines) {
		l := &s.lines[n]
		return dataplane.Object{
			Key:  dataplane.Key{Container: l.container, Rank: dataplane.Keyed, Name: text[l.from:l.name]},
			Body: text[l.from:l.to],
		}
	}
	return s.sets[n-len(s.lines)]
}

// end ends the use of the sheet.
func (s *sheet) end() {
	clear(s.lines)
	clear(s.chains)
	clear(s.sets)
	sheets.Put(s)
}
