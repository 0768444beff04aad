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
	fixed []dataplane.Object // shared with other owners, text and all
	order []int32            // of lines, then fixed
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

// objects returns everything in key order, and ends the use of the sheet. It sorts
// numbers, since objects are large and full of pointers.
func (s *sheet) objects() []dataplane.Object {
	text := string(s.text)
	key := func(i int32) dataplane.Key {
		if n := int(i) - len(s.lines); n >= 0 {
			return s.fixed[n].Key
		}
		l := &s.lines[i]
		return dataplane.Key{Container: l.container, Rank: dataplane.Keyed, Name: text[l.from:l.name]}
	}
	s.order = s.order[:0]
	for i := range len(s.lines) + len(s.fixed) {
		s.order = append(s.order, int32(i))
	}
	slices.SortFunc(s.order, func(a, b int32) int { return cmp.Or(key(a).Compare(key(b)), int(a-b)) })
	out := make([]dataplane.Object, 0, len(s.order))
	for _, i := range s.order {
		k := key(i)
		if n := len(out); n > 0 && out[n-1].Key == k {
			continue
		}
		if n := int(i) - len(s.lines); n >= 0 {
			out = append(out, s.fixed[n])
		} else {
			l := &s.lines[i]
			out = append(out, dataplane.Object{Key: k, Body: text[l.body:l.to]})
		}
	}
	clear(s.lines)
	clear(s.fixed)
	sheets.Put(s)
	return out
}
