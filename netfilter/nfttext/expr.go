package nfttext

import (
	"strconv"

	"portolan/netfilter"
	"portolan/netfilter/nftword"
)

// The forms of values, from loose to tight: concatenation, |, ^, &, shifts,
// and what stands alone. A part says what type constants have; it is zero
// where a value begins with a field, which says it.

// concat reads a value, or several with dots between.
func (r *rule) concat() (netfilter.Expr, bool) {
	e, ok := r.or(netfilter.Part{})
	if !ok || !r.peek().is(".") {
		return e, ok
	}
	c := netfilter.Concat{Parts: []netfilter.Expr{e}}
	for r.peek().is(".") {
		r.next()
		e, ok := r.or(netfilter.Part{})
		if !ok {
			return nil, false
		}
		c.Parts = append(c.Parts, e)
	}
	return c, true
}

// operators are the words for bit operations, with how tight they bind.
var operators = map[string]struct {
	op    byte
	tight int
}{"|": {'|', 1}, "or": {'|', 1}, "^": {'^', 2}, "xor": {'^', 2}, "&": {'&', 3}, "and": {'&', 3}, "<<": {'<', 4}, "lshift": {'<', 4}, ">>": {'>', 4}, "rshift": {'>', 4}}

func (r *rule) or(p netfilter.Part) (netfilter.Expr, bool) { return r.bitwise(p, 1) }

// bitwise reads operators that bind at least so tightly, from the left to the right.
func (r *rule) bitwise(p netfilter.Part, tight int) (netfilter.Expr, bool) {
	left, ok := r.alone(p)
	for ok {
		t := r.peek()
		o, is := operators[t.text]
		if !is || o.tight < tight || t.kind == quoted {
			break
		}
		r.next()
		if q := netfilter.Parts(left); len(q) == 1 && q[0].Bytes > 0 {
			p = q[0]
		}
		side := p
		if o.op == '<' || o.op == '>' {
			side = netfilter.Part{Type: netfilter.IntegerType, Bytes: 4}
		}
		var right netfilter.Expr
		if right, ok = r.bitwise(side, o.tight+1); ok {
			left = fold(netfilter.Bitwise{Op: o.op, Left: left, Right: right})
		}
	}
	return left, ok
}

// fold computes what is constant: fin|syn|rst|ack.
func fold(b netfilter.Bitwise) netfilter.Expr {
	x, okX := b.Left.(netfilter.Constant)
	y, okY := b.Right.(netfilter.Constant)
	if !okX || !okY || x.IsRange() || y.IsRange() || len(x.First) > 8 || len(y.First) > 8 {
		return b
	}
	n := netfilter.Number(x.First)
	switch m := netfilter.Number(y.First); b.Op {
	case '|':
		n |= m
	case '&':
		n &= m
	case '^':
		n ^= m
	case '<':
		n <<= m
	case '>':
		n >>= m
	}
	v := netfilter.Bytes(n, x.Part.Bytes)
	return netfilter.Constant{First: v, Last: v, Part: x.Part}
}

// alone reads what stands by itself: something in brackets, a constant where
// the type is known, or a field.
func (r *rule) alone(p netfilter.Part) (netfilter.Expr, bool) {
	if r.peek().is("(") {
		r.next()
		e, ok := r.or(p)
		return e, ok && r.next().is(")")
	}
	pos := r.pos
	if p.Bytes > 0 {
		if a, b, ok := r.value(p); ok {
			return netfilter.Constant{First: a, Last: b, Part: p}, true
		}
		r.pos = pos
	}
	return r.field()
}

// field reads a field of the packet, or another source of values.
func (r *rule) field() (netfilter.Expr, bool) {
	t := r.next()
	switch {
	case t.is("@"):
		return r.raw()
	case t.kind != word:
		return nil, false
	}
	switch t.text {
	case "meta":
		return nftword.Meta(r.next().text)
	case "ct":
		return r.ctField()
	case "numgen":
		return r.numgen()
	case "jhash", "symhash":
		return r.hash(t.text)
	case "fib":
		return r.fib()
	case "socket", "osf", "ipsec", "exthdr", "tunnel":
		return r.opaqueField(t)
	case "tcp", "ip", "sctp", "dccp":
		if n := r.peek(); n.word("option") || n.word("chunk") {
			return r.opaqueField(t)
		}
	case "rt":
		if n := r.peek(); n.word("ip") || n.word("ip6") {
			r.next()
		}
	}
	if nftword.IsHeader(t.text) {
		key := r.next()
		if key.kind == word {
			return nftword.Header(t.text, key.text)
		}
		return nil, false
	}
	return nftword.Bare(t.text)
}

// ctField reads "ct state", "ct original ip saddr".
func (r *rule) ctField() (netfilter.Expr, bool) {
	t := r.next()
	if t.text != "original" && t.text != "reply" {
		return nftword.CT("", "", t.text)
	}
	key, family := r.next().text, r.table.family
	if key == "ip" || key == "ip6" {
		family, key = key, r.next().text
	}
	return nftword.CT(t.text, family, key)
}

// number reads a number; ok is false if the next word is none.
func (r *rule) number() (uint32, bool) {
	n, err := strconv.ParseUint(r.next().text, 0, 32)
	return uint32(n), err == nil
}

// numgen reads what stands behind the word.
func (r *rule) numgen() (netfilter.Expr, bool) {
	how := r.next().text
	if (how != "random" && how != "inc") || !r.words("mod") {
		return nil, false
	}
	g := netfilter.NumGen{Random: how == "random"}
	var ok bool
	if g.Mod, ok = r.number(); !ok || g.Mod == 0 {
		return nil, false
	}
	if r.words("offset") {
		g.Offset, ok = r.number()
	}
	return g, ok
}

// hash reads jhash and symhash.
func (r *rule) hash(what string) (netfilter.Expr, bool) {
	var h netfilter.Hash
	ok := true
	if what == "jhash" {
		if h.Key, ok = r.concat(); !ok {
			return nil, false
		}
	}
	if !r.words("mod") {
		return nil, false
	}
	if h.Mod, ok = r.number(); !ok || h.Mod == 0 {
		return nil, false
	}
	if r.words("seed") {
		if h.Seed, ok = r.number(); !ok {
			return nil, false
		}
		h.Seeded = true
	}
	if r.words("offset") {
		h.Offset, ok = r.number()
	}
	return h, ok
}

// fib reads "fib saddr . mark . iif oif".
func (r *rule) fib() (netfilter.Expr, bool) {
	var f netfilter.FIBLookup
	for {
		switch r.next().text {
		case "saddr":
			f.Source = true
		case "daddr":
		case "iif":
			f.In = true
		case "oif":
			f.Out = true
		case "mark":
			f.Mark = true
		default:
			return nil, false
		}
		if !r.peek().is(".") {
			break
		}
		r.next()
	}
	switch r.next().text {
	case "type":
		f.Result = netfilter.FIBType
	case "oif":
		f.Result = netfilter.FIBInterface
		if t := r.peek(); t.word("exists") || t.word("missing") {
			f.Result = netfilter.FIBPresent
		}
	case "oifname":
		f.Result = netfilter.FIBInterfaceName
		if t := r.peek(); t.word("exists") || t.word("missing") {
			f.Result = netfilter.FIBPresent
		}
	case "check":
		f.Result = netfilter.FIBPresent
	default:
		return nil, false
	}
	return f, true
}

// raw reads "@th,16,16".
func (r *rule) raw() (netfilter.Expr, bool) {
	base := r.next()
	var p netfilter.Payload
	switch base.text {
	case "nh":
		p.Base = netfilter.NetworkHeader
	case "th":
		p.Base = netfilter.TransportHeader
	case "ll", "ih":
	default:
		return nil, false
	}
	var ok bool
	if !r.next().is(",") {
		return nil, false
	}
	if p.Offset, ok = r.number(); !ok || !r.next().is(",") {
		return nil, false
	}
	if p.Bits, ok = r.number(); !ok || p.Bits == 0 {
		return nil, false
	}
	if base.text == "ll" || base.text == "ih" || p.Offset%8 != 0 || p.Bits%8 != 0 || p.Bits > 128 {
		return netfilter.Opaque{Text: "@" + base.text + "," + strconv.Itoa(int(p.Offset)) + "," + strconv.Itoa(int(p.Bits))}, true
	}
	return p, true
}

// opaqueFields are the words that may follow the name of an option.
var optionFields = map[string]bool{
	"kind": true, "length": true, "size": true, "count": true, "left": true, "right": true, "tsval": true, "tsecr": true, "ptr": true, "value": true, "type": true, "flags": true, "addr": true, "seqno": true, "tag": true,
}

// opaqueField reads a field whose value nothing here could know.
func (r *rule) opaqueField(t token) (netfilter.Expr, bool) {
	o := netfilter.Opaque{}
	switch t.text {
	case "socket":
		if r.next().text == "cgroupv2" && r.words("level") {
			r.next()
		}
	case "osf":
		if r.words("ttl") {
			r.next()
		}
		r.next()
	case "ipsec":
		r.next()
		if r.words("spnum") {
			r.next()
		}
		if f := r.next().text; f == "ip" || f == "ip6" {
			r.next()
		}
	case "exthdr", "tunnel":
		r.next()
	default:
		r.next() // option or chunk
		if r.next().is("@") {
			return nil, false
		}
		if n := r.peek(); n.kind == word && optionFields[n.text] {
			r.next()
		}
		o.Proto = map[string]uint8{"tcp": netfilter.TCP, "sctp": netfilter.SCTP, "dccp": 33}[t.text]
		if t.text == "ip" {
			o.Family = netfilter.IPv4
		}
	}
	o.Text = r.since(t)
	return o, true
}
