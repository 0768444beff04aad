package nftables

import (
	"slices"
	"sync"

	"portolan/dataplane"
)

// sheet collects the objects of one owner. All names and bodies of elements
// share one string, so that a Service costs few allocations.
type sheet struct {
	text  []byte
	lines []line
	fixed []dataplane.Object // shared with other owners, text and all
}

type line struct {
	container      string
	from, name, to int // the name begins the body, or is before it
	body           int // where the body begins
}

// sheets are used again: rendering is otherwise mostly the growth of buffers.
var sheets = sync.Pool{New: func() any { return new(sheet) }}

func newSheet() *sheet {
	s := sheets.Get().(*sheet)
	s.text, s.lines, s.fixed = s.text[:0], s.lines[:0], s.fixed[:0]
	return s
}

// element adds an element whose text is its name and what follows it.
func (s *sheet) element(container, name string, rest ...string) {
	from := len(s.text)
	s.text = append(s.text, name...)
	end := len(s.text)
	for _, r := range rest {
		s.text = append(s.text, r...)
	}
	s.lines = append(s.lines, line{container, from, end, len(s.text), from})
}

// claim keeps a key from younger owners.
func (s *sheet) claim(container, name string) {
	from := len(s.text)
	s.text = append(s.text, name...)
	s.lines = append(s.lines, line{container, from, len(s.text), len(s.text), len(s.text)})
}

// begin starts an object whose body is written to s.text by the caller; end
// ends it.
func (s *sheet) begin(container, name string) {
	s.claim(container, name)
}

func (s *sheet) end() { s.lines[len(s.lines)-1].to = len(s.text) }

// objects returns everything in key order, and ends the use of the sheet.
func (s *sheet) objects() []dataplane.Object {
	text := string(s.text)
	out := make([]dataplane.Object, 0, len(s.lines)+len(s.fixed))
	for _, l := range s.lines {
		key := dataplane.Key{Container: l.container, Rank: dataplane.Keyed, Name: text[l.from:l.name]}
		out = append(out, dataplane.Object{Key: key, Body: text[l.body:l.to]})
	}
	out = append(out, s.fixed...)
	clear(s.lines)
	clear(s.fixed)
	sheets.Put(s)
	slices.SortStableFunc(out, func(a, b dataplane.Object) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(out, func(a, b dataplane.Object) bool { return a.Key == b.Key })
}
