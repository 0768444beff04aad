package nfttext

import (
	"strings"

	"portolan/netfilter"
)

// condition reads what begins with a field: a comparison, a lookup in a set,
// a verdict map, or a field that is set.
func (r *rule) condition() bool {
	t := r.peek()
	if r.words("meta", "random") {
		return r.random()
	}
	left, ok := r.concat()
	if !ok {
		return false
	}
	switch {
	case r.words("set"):
		return r.assign(t, left)
	case r.words("vmap"):
		m, ok := r.setOrLiteral(left, []netfilter.Part{netfilter.PartOf(netfilter.VerdictType)})
		if !ok {
			return false
		}
		r.add(netfilter.VerdictMap{Key: left, Map: m})
		return true
	case r.words("map"):
		return false // a map by itself is no condition
	}
	op, explicit := r.operator()
	if n := r.peek(); n.is("{") || n.is("@") {
		if op != netfilter.Equal && op != netfilter.NotEqual {
			return false
		}
		s, ok := r.setOrLiteral(left, nil)
		if !ok {
			return false
		}
		if s.Name == "" && len(s.Elements) == 1 && len(s.Key) == 1 && !s.Elements[0].Any && s.Doubt == "" {
			// nft itself loads a set of one as a comparison.
			e := s.Elements[0]
			r.add(netfilter.Compare{Left: left, Op: op, Right: netfilter.Constant{First: e.First, Last: e.Last, Part: s.Key[0]}, Text: r.since(t)})
			return true
		}
		r.add(netfilter.Member{Key: left, Set: s, Not: op == netfilter.NotEqual, Text: r.since(t)})
		return true
	}
	return r.compare(t, left, op, explicit)
}

// random reads what -m statistic shows as: "meta random & 2147483647 < 5".
func (r *rule) random() bool {
	shift := 1 // of 32 random bits the kernel keeps 31 for iptables
	if o := operators[r.peek().text]; o.op == '&' {
		r.next()
		if n, ok := r.number(); !ok || n != 1<<31-1 {
			return false
		}
		shift = 0
	}
	op, _ := r.operator()
	n, ok := r.number()
	if !ok || (op != netfilter.Less && op != netfilter.GreaterOrEqual) {
		return false
	}
	r.add(netfilter.StatisticRandom{Odds: n >> shift, Not: op == netfilter.GreaterOrEqual})
	return true
}

// operator reads the sign of a comparison, if there is one.
func (r *rule) operator() (op netfilter.CompareOp, explicit bool) {
	pos := r.pos
	t := r.next()
	if t.kind == special || t.kind == word {
		switch t.text {
		case "==", "eq":
			return netfilter.Equal, true
		case "!=", "ne":
			return netfilter.NotEqual, true
		case "<", "lt":
			return netfilter.Less, true
		case "<=", "le":
			return netfilter.LessOrEqual, true
		case ">", "gt":
			return netfilter.Greater, true
		case ">=", "ge":
			return netfilter.GreaterOrEqual, true
		case "!":
			return netfilter.SharesNone, true
		}
	}
	r.pos = pos
	return netfilter.Equal, false
}

// compare reads the right side of a comparison.
func (r *rule) compare(t token, left netfilter.Expr, op netfilter.CompareOp, explicit bool) bool {
	parts := netfilter.Parts(left)
	if _, known := netfilter.Width(parts); !known {
		return r.opaqueCompare(t, left)
	}
	c := netfilter.Compare{Left: left, Op: op}
	if len(parts) > 1 {
		right := netfilter.Concat{}
		for i, p := range parts {
			e, ok := r.or(p)
			if !ok || (i+1 < len(parts) && !r.next().is(".")) {
				return false
			}
			right.Parts = append(right.Parts, e)
		}
		c.Right, c.Text = right, r.since(t)
		r.add(c)
		return true
	}
	right, listed, ok := r.list(parts[0])
	if !ok {
		return false
	}
	if r.peek().is("/") {
		// "syn / fin,syn,rst,ack": a value and the mask before it.
		r.next()
		mask, _, ok := r.list(parts[0])
		if !ok {
			return false
		}
		c.Left = netfilter.Bitwise{Op: '&', Left: left, Right: mask}
		explicit = true
	}
	if parts[0].Type.IsFlags() && !explicit {
		if _, masked := left.(netfilter.Bitwise); !masked || listed {
			c.Op = netfilter.Shares
		}
	}
	if f, is := left.(netfilter.FIBLookup); is && f.Result == netfilter.FIBInterface {
		right = noInterface(right)
	}
	c.Right, c.Text = right, r.since(t)
	r.add(c)
	return true
}

// noInterface understands the index 0, which is no interface's.
func noInterface(e netfilter.Expr) netfilter.Expr {
	zero, _ := netfilter.NameBytes("0")
	if c, is := e.(netfilter.Constant); is && c.First == zero {
		none, _ := netfilter.NameBytes("")
		return netfilter.Constant{First: none, Last: none, Part: c.Part}
	}
	return e
}

// list reads a value, or several flags with commas, which are one value.
func (r *rule) list(p netfilter.Part) (e netfilter.Expr, listed, ok bool) {
	e, ok = r.or(p)
	for ok && r.peek().is(",") && p.Type.IsFlags() {
		r.next()
		var more netfilter.Expr
		if more, ok = r.or(p); ok {
			e, listed = fold(netfilter.Bitwise{Op: '|', Left: e, Right: more}), true
		}
	}
	return e, listed, ok
}

// opaqueCompare reads a comparison whose left side nothing here could know,
// so that the right side does not matter.
func (r *rule) opaqueCompare(t token, left netfilter.Expr) bool {
	if !r.skipValue() {
		return false
	}
	for n := r.peek(); n.is(",") || n.is("."); n = r.peek() {
		r.next()
		if !r.skipValue() {
			return false
		}
	}
	r.add(netfilter.Compare{Left: left, Right: netfilter.Constant{}, Text: r.since(t)})
	return true
}

// skipValue moves behind a value of any type: a word, a range of quoted words,
// a set.
func (r *rule) skipValue() bool {
	t := r.next()
	switch {
	case t.is("{"):
		r.skipBlock()
		return true
	case t.is("@"), t.is("["):
		t = r.next()
		if r.peek().is("]") {
			r.next()
		}
	}
	if t.kind == quoted && strings.HasPrefix(r.peek().text, "-") {
		r.next()
		if r.peek().kind == quoted {
			r.next()
		}
	}
	for n := r.peek(); n.glued && (n.is(":") || n.kind == word); n = r.peek() {
		r.next()
	}
	return t.kind == word || t.kind == quoted
}

// setOrLiteral reads "@name" or "{ ... }". data are the types of what it maps
// to, nil for a set.
func (r *rule) setOrLiteral(key netfilter.Expr, data []netfilter.Part) (*netfilter.NFTSet, bool) {
	t := r.next()
	if t.is("@") {
		name := r.next()
		if name.kind != word {
			return nil, false
		}
		return r.table.setOf(name.text), true
	}
	if !t.is("{") {
		return nil, false
	}
	s := &netfilter.NFTSet{Key: netfilter.Parts(key), Data: data, Declared: true}
	if n := r.dataParts(); len(data) > 1 && n > 0 && n < len(data) {
		s.Data = data[:n]
	}
	if r.elements(s) != nil {
		return nil, false
	}
	if s.Doubt != "" && (s.Key == nil || s.Key[0].Bytes > 0) {
		return nil, false // a typed set with a value that is none
	}
	s.Index()
	return s, true
}

// dataParts counts the parts of the first data of the map that begins here.
func (r *rule) dataParts() int {
	pos := r.pos
	defer func() { r.pos = pos }()
	n := 0
	for {
		switch t := r.next(); {
		case t.kind == end, t.is("}"), t.is(",") && n > 0:
			return n
		case t.is(":"):
			n = 1
		case t.is(".") && n > 0:
			n++
		}
	}
}

// mapped reads "X map ..." behind its key, or gives the key as it is. data are
// the types that are wanted.
func (r *rule) mapped(key netfilter.Expr, data []netfilter.Part) (netfilter.Expr, bool) {
	if !r.words("map") {
		return key, true
	}
	m, ok := r.setOrLiteral(key, data)
	return netfilter.Mapped{Key: key, Map: m}, ok
}

// wanted reads a value of a type: a constant, a field, or a map's.
func (r *rule) wanted(data []netfilter.Part) (netfilter.Expr, bool) {
	pos := r.pos
	if len(data) > 0 && data[0].Bytes > 0 {
		// A constant may look like nothing else, and may not be a key.
		if e, ok := r.or(data[0]); ok && !r.peek().is(".") && !r.peek().word("map") {
			return e, true
		}
	}
	r.pos = pos
	key, ok := r.concat()
	if !ok {
		return nil, false
	}
	return r.mapped(key, data)
}

// assign reads the value that a field is set to.
func (r *rule) assign(t token, left netfilter.Expr) bool {
	to, ok := left.(netfilter.Selected)
	if !ok {
		// Fields that a walk does not look at.
		if _, opaque := left.(netfilter.Opaque); !opaque {
			return false
		}
		if r.words("rt", "mtu") {
			return r.note(t, "set")
		}
		return r.skipAssigned() && r.note(t, "set")
	}
	v, ok := r.wanted([]netfilter.Part{to.Part})
	if !ok {
		return false
	}
	switch to.Selector {
	case netfilter.MetaMark, netfilter.MetaPriority, netfilter.CTMark, netfilter.IPSaddr, netfilter.IPDaddr, netfilter.IP6Saddr, netfilter.IP6Daddr,
		netfilter.SourcePort, netfilter.DestinationPort, netfilter.IPTTL, netfilter.IP6HopLimit, netfilter.IPDSCP, netfilter.IP6DSCP, netfilter.IPECN:
		r.add(netfilter.Assign{To: to, Value: v})
		return true
	}
	return false // what later rules see is not modelled
}

// skipAssigned moves behind a value whose type is not known.
func (r *rule) skipAssigned() bool {
	pos := r.pos
	if key, ok := r.concat(); ok {
		if _, ok := r.mapped(key, []netfilter.Part{{}}); ok {
			return true
		}
	}
	r.pos = pos
	return r.skipValue()
}
