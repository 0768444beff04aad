package nfttext

import (
	"strings"

	"portolan/netfilter"
	"portolan/netfilter/nftword"
)

// setOf finds a set or makes one that is yet to be declared.
func (t *table) setOf(name string) *netfilter.NFTSet {
	s := t.sets[name]
	if s == nil {
		s = &netfilter.NFTSet{Name: name}
		t.sets[name] = s
	}
	return s
}

// set reads the declaration of a set or map.
func (p *parser) set(t *table, name string, isMap bool) error {
	s := t.setOf(name)
	if !s.Declared {
		s.Declared = true
		t.Sets = append(t.Sets, s)
	}
	err := p.block(func() error { return p.inSet(t, s) })
	if err == nil && isMap && len(s.Data) == 0 {
		s.Data = []netfilter.Part{{}}
	}
	return err
}

// inSet reads one line of a set's block.
func (p *parser) inSet(t *table, s *netfilter.NFTSet) error {
	what := p.next()
	switch what.text {
	case "type", "typeof":
		read := p.typeNames
		if what.text == "typeof" {
			read = func() []netfilter.Part { return p.typeOf(t) }
		}
		stop := p.stop
		p.stop = p.ruleEnd()
		s.Key, s.Data = read(), nil
		if p.peek().is(":") {
			if p.next(); p.peek().word("interval") {
				p.next() // ranges as data, in older versions
			}
			s.Data = read()
		}
		p.pos, p.stop = p.stop, stop
		return nil
	case "flags":
		end := p.ruleEnd()
		for _, f := range strings.FieldsFunc(p.text[p.pos:end], func(r rune) bool { return r == ',' || r == ' ' || r == '\t' }) {
			s.Dynamic = s.Dynamic || f == "dynamic" || f == "timeout"
		}
		p.pos = end
	case "timeout":
		s.Timeout = p.next().text
		s.Dynamic = true
		p.pos = p.ruleEnd()
	case "elements":
		if eq := p.next(); !eq.is("=") {
			return p.fail(eq, "%q where the elements of %s should follow", eq.text, s.Name)
		}
		return p.openElements(s)
	default: // size, policy, counter, comment, auto-merge, gc-interval, ...
		p.pos = p.ruleEnd()
	}
	return nil
}

// typeNames reads "ipv4_addr . inet_proto". Raw bytes, "@nh,96,96", stand for
// integers of that length.
func (p *parser) typeNames() []netfilter.Part {
	var out []netfilter.Part
	for {
		if p.peek().is("@") {
			p.next()
			e, _ := (&rule{parser: p}).raw()
			out = append(out, netfilter.Parts(e)...)
		} else {
			d, _ := netfilter.DataTypeByName(p.next().text)
			part := netfilter.PartOf(d)
			if d == netfilter.IntegerType {
				part.Bytes = 4 // JSON does not tell; lookups widen shorter ones
			}
			out = append(out, part)
		}
		if !p.peek().is(".") {
			return out
		}
		p.next()
	}
}

// typeOf reads "ip daddr . th dport": what an expression gives.
func (p *parser) typeOf(t *table) []netfilter.Part {
	if p.peek().word("verdict") {
		p.next()
		return []netfilter.Part{netfilter.PartOf(netfilter.VerdictType)}
	}
	r := &rule{parser: p, table: t}
	e, ok := r.concat()
	if !ok {
		return []netfilter.Part{{}}
	}
	return netfilter.Parts(e)
}

// addElements reads `add element`.
func (p *parser) addElements(t *table, name string) error {
	return p.openElements(t.setOf(name))
}

func (p *parser) openElements(s *netfilter.NFTSet) error {
	open := p.next()
	if !open.is("{") {
		return p.fail(open, "%q where elements of %s should begin", open.text, s.Name)
	}
	return p.elements(s)
}

// elements reads up to the closing brace. Elements that are not understood
// make the content of the set doubtful.
func (p *parser) elements(s *netfilter.NFTSet) error {
	flat := p.flat
	p.flat = true
	defer func() { p.flat = flat }()
	if _, known := netfilter.Width(s.Key); !known || len(s.Key) == 0 {
		s.Doubt = "the type of the keys of set " + s.Name + " is not understood"
		p.skipBlock()
		return nil
	}
	r := elementReader{parser: p, set: s, verdicts: map[[2]string]netfilter.Statement{}}
	for {
		t := p.peek()
		switch {
		case t.kind == end:
			return p.fail(t, "the elements of %s have no end", s.Name)
		case t.is("}"):
			p.next()
			r.finish()
			return nil
		case t.is(","):
			p.next()
			continue
		}
		if !r.element() {
			s.Doubt = "an element of set " + s.Name + " is not understood: " + strings.TrimSpace(p.text[t.at:min(p.pos, t.at+60)])
			p.skipElement()
		}
	}
}

// skipElement moves to the comma or brace after an element.
func (p *parser) skipElement() {
	for {
		switch t := p.peek(); {
		case t.kind == end, t.is(","), t.is("}"):
			return
		case t.is("{"):
			p.next()
			p.skipBlock()
		default:
			p.next()
		}
	}
}

// elementReader reads elements; their bytes are gathered in one piece, because
// there may be hundreds of thousands.
type elementReader struct {
	*parser
	set      *netfilter.NFTSet
	bytes    []byte
	spans    []span
	verdicts map[[2]string]netfilter.Statement
}

// span says which bytes are an element's: first, last, data, last of data.
type span struct{ at [5]int }

func (r *elementReader) element() bool {
	var e netfilter.Element
	var s span
	s.at[0] = len(r.bytes)
	if r.peek().word("*") && !(r.set.Key[0].Type == netfilter.InterfaceType && len(r.set.Key) == 1 && !r.set.IsMap()) {
		r.next()
		e.Any = true
		s.at[1], s.at[2] = s.at[0], s.at[0]
	} else {
		last, ok := r.values(r.set.Key)
		if !ok {
			r.bytes = r.bytes[:s.at[0]]
			return false
		}
		s.at[1] = len(r.bytes)
		r.bytes = append(r.bytes, last...)
		s.at[2] = len(r.bytes)
	}
	ok := r.options(&e) && r.data(&e, &s) && r.options(&e)
	if t := r.peek(); !ok || !(t.is(",") || t.is("}")) {
		r.bytes = r.bytes[:s.at[0]]
		return false
	}
	r.set.Elements = append(r.set.Elements, e)
	r.spans = append(r.spans, s)
	return true
}

// finish hands the bytes to the elements.
func (r *elementReader) finish() {
	all := string(r.bytes)
	es := r.set.Elements[len(r.set.Elements)-len(r.spans):]
	for i, s := range r.spans {
		e := &es[i]
		e.First, e.Last = all[s.at[0]:s.at[1]], all[s.at[0]:s.at[1]]
		if s.at[2] > s.at[1] {
			e.Last = all[s.at[1]:s.at[2]]
		}
		e.Data, e.DataLast = all[s.at[2]:s.at[3]], all[s.at[2]:s.at[3]]
		if s.at[4] > s.at[3] {
			e.DataLast = all[s.at[3]:s.at[4]]
		}
	}
}

// values reads the parts of a key or of data behind r.bytes. last is empty
// when each is one value.
func (r *elementReader) values(parts []netfilter.Part) (last []byte, ok bool) {
	from, ranged := len(r.bytes), false
	for i, p := range parts {
		if i > 0 && !r.next().is(".") {
			return nil, false
		}
		if t := r.peek(); t.kind == word {
			from := len(r.bytes)
			var ok bool
			if r.bytes, ok = nftword.Append(r.bytes, p, t.text); ok {
				r.next()
				if ranged {
					last = append(last, r.bytes[from:]...)
				}
				continue
			}
		}
		a, b, ok := r.value(p)
		if !ok {
			return nil, false
		}
		if a != b && !ranged {
			ranged = true
			last = append(last, r.bytes[from:]...)
		}
		r.bytes = append(r.bytes, a...)
		if ranged {
			last = append(last, b...)
		}
	}
	return last, true
}

// value reads one value of a part.
func (p *parser) value(part netfilter.Part) (first, last string, ok bool) {
	t := p.next()
	text := t.text
	switch {
	case t.kind == word, t.kind == quoted:
	case t.is("@"), t.is("{"):
		return "", "", false
	case t.is(":") && part.Type == netfilter.ClassIDType:
		text = ""
		p.pos = t.at
	default:
		return "", "", false
	}
	if part.Type == netfilter.ClassIDType {
		if colon := p.peek(); colon.is(":") && colon.glued {
			p.next()
			minor := p.next()
			text += ":" + minor.text
		}
	}
	first, last, ok = nftword.Value(part, text)
	return first, last, ok
}

// options reads what an element may have beside key and data.
func (r *elementReader) options(e *netfilter.Element) bool {
	for {
		t := r.peek()
		if t.kind != word {
			return true
		}
		switch t.text {
		case "timeout", "last":
			r.next()
			if r.next().text == "used" {
				r.next()
			}
		case "expires":
			r.next()
			e.Expires = r.next().text
		case "comment":
			r.next()
			e.Comment = r.next().text
		case "counter":
			r.next()
			if r.peek().word("packets") {
				for range 4 {
					r.next()
				}
			}
		case "limit", "quota", "ct":
			for t := r.peek(); t.kind == word && t.text != "timeout" && t.text != "expires" && t.text != "comment"; t = r.peek() {
				r.next()
			}
		default:
			return false
		}
	}
}

// data reads what an element maps to.
func (r *elementReader) data(e *netfilter.Element, s *span) bool {
	s.at[3], s.at[4] = s.at[2], s.at[2]
	if !r.peek().is(":") {
		return true
	}
	r.next()
	if !r.set.IsMap() {
		return false
	}
	if r.set.IsVerdictMap() {
		e.Verdict = r.verdict()
		return e.Verdict != nil
	}
	if _, known := netfilter.Width(r.set.Data); !known {
		return false
	}
	last, ok := r.values(r.set.Data)
	s.at[3] = len(r.bytes)
	r.bytes = append(r.bytes, last...)
	s.at[4] = len(r.bytes)
	return ok
}

// verdict reads a verdict; equal ones are one value.
func (r *elementReader) verdict() netfilter.Statement {
	t := r.next()
	jump := t.kind == word && (t.text == "goto" || t.text == "jump")
	chain := ""
	if jump {
		chain = r.next().text
	}
	key := [2]string{t.text, chain}
	v, ok := r.verdicts[key]
	if !ok {
		v = verdictOf(strings.TrimSpace(t.text + " " + chain))
		r.verdicts[key] = v
	}
	return v
}

// verdictOf is the verdict of that text, nil for others.
func verdictOf(text string) netfilter.Statement {
	what, chain, _ := strings.Cut(text, " ")
	switch what {
	case "accept":
		return netfilter.Accept{}
	case "drop":
		return netfilter.Drop{}
	case "continue":
		return netfilter.Continue{}
	case "return":
		return netfilter.Return{}
	case "jump", "goto":
		if chain != "" {
			return netfilter.Jump{Chain: chain, Goto: what == "goto"}
		}
	}
	return nil
}
