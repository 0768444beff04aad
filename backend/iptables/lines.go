package iptables

import (
	"slices"
	"sync"

	"portolan/dataplane"
)

// sheet collects the lines of one Service. All bodies share one string, so that
// a Service with many endpoints costs few allocations.
type sheet struct {
	text  []byte
	lines []line
}

// line is where a line stands in the text of a sheet.
type line struct {
	key      dataplane.Key
	from, to int
}

// sheets are used again: rendering is otherwise mostly the growth of buffers.
var sheets = sync.Pool{New: func() any { return new(sheet) }}

func newSheet() *sheet {
	s := sheets.Get().(*sheet)
	s.text, s.lines = s.text[:0], s.lines[:0]
	return s
}

// rule adds a line; its body is the parts strung together, and no parts are a
// claim.
func (s *sheet) rule(container string, rank int, name string, parts ...string) {
	from := len(s.text)
	for _, p := range parts {
		s.text = append(s.text, p...)
	}
	s.lines = append(s.lines, line{dataplane.Key{Container: container, Rank: rank, Name: name}, from, len(s.text)})
}

// objects returns the lines in key order, and ends the use of the sheet.
func (s *sheet) objects() []dataplane.Object {
	text := string(s.text)
	out := make([]dataplane.Object, len(s.lines))
	for i, l := range s.lines {
		out[i] = dataplane.Object{Key: l.key, Body: text[l.from:l.to]}
	}
	clear(s.lines)
	sheets.Put(s)
	slices.SortStableFunc(out, func(a, b dataplane.Object) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(out, func(a, b dataplane.Object) bool { return a.Key == b.Key }) // a way may be asked for twice
}
