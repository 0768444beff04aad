package netfilter

import (
	"cmp"
	"slices"
	"strings"
)

// NFTSet is a set, a map or a verdict map of an nft table, or one that a rule
// has within itself (its Name is ""). Once indexed it is not changed, and then
// safe for concurrent use.
type NFTSet struct {
	Name string
	Key  []Part
	Data []Part // of a map; a verdict map has VerdictType
	// Dynamic sets are changed by rules, so that what they hold now may not be
	// what they held when they were listed.
	Dynamic bool
	Timeout string // of elements, as written, "" without
	// Declared is false for a set that a rule names and nothing declares.
	Declared bool
	// Doubt says why the content is not known, "" when it is.
	Doubt    string
	Elements []Element

	exact    map[string]int32
	ranges   []int32            // by first key, when they do not overlap
	by       map[string][]int32 // of ranges: by the parts that are single in all
	single   []bool
	catchAll int32
}

// Element is one element: a key, or a range of keys part by part, and what it
// maps to.
type Element struct {
	First, Last string
	// Data and DataLast are what a map has, equal unless it is a range.
	Data, DataLast string
	Verdict        Statement // of a verdict map: Accept, Drop, Continue, Return, Jump
	Comment        string
	Expires        string // time left, as written, "" without
	Any            bool   // the element for keys that no other has
}

// IsMap reports whether elements have data, IsVerdictMap whether the data are
// verdicts.
func (s *NFTSet) IsMap() bool { return len(s.Data) > 0 }

// IsVerdictMap reports whether elements have verdicts.
func (s *NFTSet) IsVerdictMap() bool { return len(s.Data) == 1 && s.Data[0].Type == VerdictType }

// Index prepares the set for lookups, in time proportional to its elements.
func (s *NFTSet) Index() {
	s.exact, s.ranges, s.by, s.catchAll = make(map[string]int32, len(s.Elements)), nil, nil, -1
	for i := range s.Elements {
		switch e := &s.Elements[i]; {
		case e.Any:
			s.catchAll = int32(i)
		case e.First == e.Last:
			s.exact[e.First] = int32(i)
		default:
			s.ranges = append(s.ranges, int32(i))
		}
	}
	if len(s.ranges) == 0 {
		return
	}
	if len(s.Key) == 1 {
		slices.SortFunc(s.ranges, func(a, b int32) int { return cmp.Compare(s.Elements[a].First, s.Elements[b].First) })
		return
	}
	s.indexRanges()
}

// indexRanges groups ranges of concatenations by the parts that have one value
// in each of them.
func (s *NFTSet) indexRanges() {
	s.single = make([]bool, len(s.Key))
	for i := range s.single {
		s.single[i] = true
	}
	for _, r := range s.ranges {
		e, at := &s.Elements[r], 0
		for i, p := range s.Key {
			end := at + int(p.Bytes)
			s.single[i] = s.single[i] && e.First[at:end] == e.Last[at:end]
			at = end
		}
	}
	s.by = map[string][]int32{}
	for _, r := range s.ranges {
		k := s.singles(s.Elements[r].First)
		s.by[k] = append(s.by[k], r)
	}
}

// singles are the parts of a key that ranges are grouped by.
func (s *NFTSet) singles(key string) string {
	var b strings.Builder
	at := 0
	for i, p := range s.Key {
		end := at + int(p.Bytes)
		if s.single[i] {
			b.WriteString(key[at:end])
		}
		at = end
	}
	return b.String()
}

// Find gives the element for a key, nil if there is none.
func (s *NFTSet) Find(key string) *Element {
	if i, ok := s.exact[key]; ok {
		return &s.Elements[i]
	}
	if i := s.findRange(key); i >= 0 {
		return &s.Elements[i]
	}
	if s.catchAll >= 0 {
		return &s.Elements[s.catchAll]
	}
	return nil
}

// findRange looks among elements that are ranges; -1 when none fits. Ranges of one value
// are sorted and do not overlap, so one search finds it; of concatenations those are
// tried that share the parts that are single values.
func (s *NFTSet) findRange(key string) int32 {
	if len(s.ranges) == 0 {
		return -1
	}
	if s.by == nil {
		// The kernel refuses ranges that overlap.
		n, _ := slices.BinarySearchFunc(s.ranges, key, func(r int32, key string) int {
			if s.Elements[r].First <= key {
				return -1
			}
			return 1
		})
		if n > 0 && key <= s.Elements[s.ranges[n-1]].Last {
			return s.ranges[n-1]
		}
		return -1
	}
	if n, _ := Width(s.Key); len(key) != n {
		return -1
	}
	for _, r := range s.by[s.singles(key)] {
		if s.within(&s.Elements[r], key) {
			return r
		}
	}
	return -1
}

// within compares part by part.
func (s *NFTSet) within(e *Element, key string) bool {
	at := 0
	for _, p := range s.Key {
		end := at + int(p.Bytes)
		if v := key[at:end]; v < e.First[at:end] || v > e.Last[at:end] {
			return false
		}
		at = end
	}
	return true
}

// Candidates lists the elements that may be for a key of which some parts are
// known only to lie between bounds, or with "" not at all.
func (s *NFTSet) Candidates(first, last []string) []*Element {
	var out []*Element
	for i := range s.Elements {
		if e := &s.Elements[i]; e.Any || s.mayHold(e, first, last) {
			out = append(out, e)
		}
	}
	return out
}

// mayHold tells whether an element may hold a key whose parts lie between first and last;
// where these are empty nothing is known of a part.
func (s *NFTSet) mayHold(e *Element, first, last []string) bool {
	at := 0
	for i, p := range s.Key {
		end := at + int(p.Bytes)
		if end > len(e.First) || i >= len(first) {
			return true
		}
		if first[i] != "" && (last[i] < e.First[at:end] || first[i] > e.Last[at:end]) {
			return false
		}
		at = end
	}
	return true
}
