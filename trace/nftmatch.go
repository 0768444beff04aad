package trace

import (
	"strings"

	"portolan/netfilter"
)

// found is the answer to a lookup in a set or map.
type found struct {
	truth   truth // no, yes, or maybe
	element *netfilter.Element
	data    datum // of yes, when a rule of this walk put it there
	cands   []*netfilter.Element
	key     string
	why     string
	ask     bool
	cond    string // what would have to have happened for a no to be a yes
}

// lookup looks a key up.
func (r *run) inNFTSet(key netfilter.Expr, s *netfilter.NFTSet) found {
	parts := []netfilter.Expr{key}
	if c, is := key.(netfilter.Concat); is {
		parts = c.Parts
	}
	var value strings.Builder
	var open datum // the first part that is not known
	var first, last []string
	for i, x := range parts {
		d := r.expr(x)
		switch d.state {
		case absent:
			return found{cond: ""}
		case unclear:
			if open.state == absent {
				open = d
			}
			first, last = append(first, widen(d.value, s, i)), append(last, widen(d.until(), s, i))
			continue
		}
		v := widen(d.value, s, i)
		first, last = append(first, v), append(last, v)
		value.WriteString(v)
	}
	k := value.String()
	switch n, sized := netfilter.Width(s.Key); {
	case s.Doubt != "":
		return found{truth: maybe, key: "doubt " + s.Name + " " + k, why: s.Doubt}
	case open.state == unclear:
		return r.unclearLookup(s, open, first, last)
	case sized && (n != len(k) || len(s.Key) != len(parts)):
		return found{truth: maybe, key: "type " + s.Name, why: "the keys of set " + s.Name + " are of another type"}
	}
	if d, ok := r.memory.sets[s][k]; ok {
		return found{truth: yes, data: d}
	}
	if e := s.Find(k); e != nil {
		if s.Dynamic {
			r.assumed.add("what dynamic set " + s.Name + " held when it was listed, it still holds")
		}
		return found{truth: yes, element: e}
	}
	if !s.Dynamic {
		return found{}
	}
	r.assumed.add("no dynamic set or map remembers the packet but for what was listed; branches where one does have share 0")
	return found{cond: what(s) + " remembers " + netfilter.Format(s.Key, k)}
}

func what(s *netfilter.NFTSet) string {
	if name, _ := nftChainName(s.Name); name != "" {
		return "the set of " + name
	}
	if s.IsMap() {
		return "the map " + s.Name
	}
	return "the set " + s.Name
}

// widen makes a number as long as the numbers of a set are, of which JSON
// does not tell the size.
func widen(v string, s *netfilter.NFTSet, part int) string {
	if part < len(s.Key) && s.Key[part].Type == netfilter.IntegerType && v != "" && len(v) < int(s.Key[part].Bytes) {
		return strings.Repeat("\x00", int(s.Key[part].Bytes)-len(v)) + v
	}
	return v
}

// unclearLookup is a lookup of a key that is known in part.
func (r *run) unclearLookup(s *netfilter.NFTSet, open datum, first, last []string) found {
	f := found{truth: maybe, why: open.why, ask: open.ask, key: open.key}
	if open.chance {
		return f // each number that may be drawn will be looked up
	}
	if !open.ask {
		f.key = "in " + s.Name + strings.Join(first, "\x00")
		if s.Name == "" {
			f.key = ""
		}
	}
	f.cands = s.Candidates(first, last)
	if len(f.cands) == 0 && !s.Dynamic {
		return found{}
	}
	return f
}

// mapped is what a map has for a key.
func (r *run) mapped(e netfilter.Mapped) datum {
	f := r.inNFTSet(e.Key, e.Map)
	switch f.truth {
	case no:
		return datum{cond: f.cond}
	case maybe:
		d := datum{state: unclear, key: f.key, why: f.why, ask: f.ask, open: true}
		if same := sameData(f.cands); same != nil && !e.Map.Dynamic && !f.ask {
			d.value, d.last = same.Data, same.DataLast
		}
		return d
	}
	if f.element == nil {
		return f.data
	}
	d := have(f.element.Data)
	if f.element.DataLast != f.element.Data {
		d.last = f.element.DataLast
	}
	r.note.element(e.Map, f.element)
	return d
}

// sameData is one of the elements when all have the same data.
func sameData(es []*netfilter.Element) *netfilter.Element {
	for _, e := range es {
		if e.Data != es[0].Data || e.DataLast != es[0].DataLast {
			return nil
		}
	}
	if len(es) == 0 {
		return nil
	}
	return es[0]
}

// member evaluates a lookup as a condition.
func (r *run) member(m netfilter.Member) (v value, cond string) {
	f := r.inNFTSet(m.Key, m.Set)
	switch f.truth {
	case maybe:
		if all := f.cands; len(all) > 0 && coversAll(all) {
			return is(!m.Not), ""
		}
		return value{truth: maybe, key: f.key, why: f.why, fact: f.ask}.except(m.Not), ""
	case yes:
		if f.element != nil {
			r.note.element(m.Set, f.element)
		}
		return is(!m.Not), ""
	}
	if r.lacks(m.Key) {
		return value{}, "" // no key: neither in the set nor not in it
	}
	return is(m.Not), f.cond
}

// coversAll reports whether one of these elements is there for every key.
func coversAll(es []*netfilter.Element) bool {
	for _, e := range es {
		if e.Any {
			return true
		}
	}
	return false
}

// lacks reports whether a key has no value at all.
func (r *run) lacks(key netfilter.Expr) bool {
	if c, is := key.(netfilter.Concat); is {
		for _, x := range c.Parts {
			if r.expr(x).state == absent {
				return true
			}
		}
		return false
	}
	r.again()
	return r.expr(key).state == absent
}

// compare evaluates a comparison.
func (r *run) compare(c netfilter.Compare) value {
	left := r.expr(c.Left)
	if left.state == absent {
		return value{}
	}
	if _, opaque := c.Left.(netfilter.Opaque); opaque {
		return value{truth: maybe, key: c.Text, why: "whether " + c.Text + " holds is not known"}
	}
	right := r.expr(c.Right)
	switch {
	case right.state == absent:
		return value{}
	case right.state == unclear:
		return value{truth: maybe, key: c.Text, why: right.why, fact: right.ask}
	}
	if len(left.value) < len(right.value) && left.state == known && len(netfilter.Parts(c.Left)) == 1 {
		left.value = strings.Repeat("\x00", len(right.value)-len(left.value)) + left.value
	}
	if left.state == unclear {
		return r.unclearCompare(c, left, right)
	}
	if s, is := c.Left.(netfilter.Selected); is && s.Selector == netfilter.CTStatusField && c.Op < netfilter.Shares {
		return unsure("the connection has flags of the kernel's own, which are not known (" + c.Text + ")")
	}
	return is(holds(c.Op, left.value, right.value, right.until()))
}

// holds compares a value with a range.
func holds(op netfilter.CompareOp, v, first, last string) bool {
	switch op {
	case netfilter.Equal:
		return first <= v && v <= last
	case netfilter.NotEqual:
		return v < first || v > last
	case netfilter.Less:
		return v < first
	case netfilter.LessOrEqual:
		return v <= last
	case netfilter.Greater:
		return v > last
	case netfilter.GreaterOrEqual:
		return v >= first
	}
	shares := false
	for i := range min(len(v), len(first)) {
		shares = shares || v[i]&first[i] != 0
	}
	return shares == (op == netfilter.Shares)
}

// unclearCompare compares a value of which at most bounds are known.
func (r *run) unclearCompare(c netfilter.Compare, left, right datum) value {
	if s, is := c.Left.(netfilter.Selected); is && left.key != "" && (left.key == "in" || left.key == "out") {
		// iptables rules may ask for the same interface.
		name := strings.TrimRight(right.value, "\x00")
		if right.last != "" {
			name += "+"
		}
		m := netfilter.Interface{Name: name, In: s.Selector == netfilter.MetaIIFName || s.Selector == netfilter.MetaIIF, Not: c.Op == netfilter.NotEqual}
		return r.iface(m)
	}
	if left.value != "" && c.Op < netfilter.Shares {
		a, b := holds(c.Op, left.value, right.value, right.until()), holds(c.Op, left.until(), right.value, right.until())
		inside := left.value < right.value && right.until() < left.until()
		if a == b && !(inside && (c.Op == netfilter.Equal || c.Op == netfilter.NotEqual)) {
			if left.why == "the source port was not given" {
				r.assumed.add("the source port is one of 32768-60999")
			}
			return is(a)
		}
	}
	key := c.Text
	if left.ask {
		key = left.key
	}
	return value{truth: maybe, key: key, why: left.why, fact: left.ask}
}
