package trace

import (
	"portolan/netfilter"
)

// most is the largest number of values of a random number that are followed.
const most = 1 << 17

// drawnNumber is the next of the random numbers that were drawn for the
// statement.
func (r *run) drawnNumber(offset uint32) datum {
	if r.used >= len(r.drawn) {
		return datum{state: unclear, why: "it is chosen by chance", chance: true}
	}
	n := r.drawn[r.used]
	r.used++
	return number(uint64(offset+n), 4)
}

// draw settles the random numbers of a statement. One number is drawn by what
// follows from it, so that a thousand slots with three endpoints are three
// ways to go; result says what follows from the number that is set.
func (r *run) draw(result func() string, exprs ...netfilter.Expr) {
	r.drawn, r.used = r.drawn[:0], 0
	var mods []uint32
	for _, e := range exprs {
		mods = r.chances(mods, e)
	}
	total := uint64(1)
	for _, m := range mods {
		total *= uint64(m)
		if total > most {
			return // too many: what depends on it is not known
		}
	}
	if len(mods) == 0 {
		return
	}
	rep := r.oracle.chosen(func() (weights []int, reps []uint32) {
		seen := map[string]int{}
		note := *r.note
		defer func() { *r.note = note }() // it is about the number that is drawn
		for n := range uint32(total) {
			r.set(mods, n)
			k := result()
			at, ok := seen[k]
			if !ok {
				at = len(reps)
				seen[k] = at
				weights, reps = append(weights, 0), append(reps, n)
			}
			weights[at]++
		}
		return weights, reps
	})
	r.set(mods, rep)
}

// set makes the n-th combination of random numbers the one that expressions
// find.
func (r *run) set(mods []uint32, n uint32) {
	r.drawn, r.used = r.drawn[:0], 0
	for _, m := range mods {
		r.drawn = append(r.drawn, n%m)
		n /= m
	}
}

// again makes expressions find the drawn numbers once more.
func (r *run) again() { r.used = 0 }

// chances lists how many values each random number within an expression may
// have, in the order in which they are computed.
func (r *run) chances(mods []uint32, e netfilter.Expr) []uint32 {
	switch e := e.(type) {
	case netfilter.NumGen:
		if !e.Random {
			r.assumed.add("where the counter of numgen inc stands is not known: shares are those of many packets")
		}
		return append(mods, e.Mod)
	case netfilter.Hash:
		if _, ok := r.hash(e); !ok {
			r.assumed.add("the seed of a hash is not known: shares are those of many connections")
			return append(mods, e.Mod)
		}
	case netfilter.Bitwise:
		return r.chances(r.chances(mods, e.Left), e.Right)
	case netfilter.Concat:
		for _, x := range e.Parts {
			mods = r.chances(mods, x)
		}
	case netfilter.Mapped:
		return r.chances(mods, e.Key)
	}
	return mods
}

// hash computes a hash whose seed and key are known.
func (r *run) hash(e netfilter.Hash) (datum, bool) {
	if !e.Seeded || e.Key == nil {
		return datum{}, false
	}
	key := []byte{}
	parts := []netfilter.Expr{e.Key}
	c, several := e.Key.(netfilter.Concat)
	if several {
		parts = c.Parts
	}
	for _, x := range parts {
		d := r.expr(x)
		switch d.state {
		case absent:
			return datum{}, true
		case unclear:
			return datum{}, false
		}
		key = append(key, d.value...)
		for several && len(key)%4 != 0 {
			key = append(key, 0) // each part begins in a register of its own
		}
	}
	for _, p := range netfilter.Parts(e.Key) {
		if hostOrder(p.Type) {
			return datum{}, false // the kernel hashes these as the machine keeps them
		}
	}
	h := jhash(key, e.Seed)
	return number(uint64(e.Offset)+uint64(h)*uint64(e.Mod)>>32, 4), true
}

func hostOrder(t netfilter.DataType) bool {
	switch t {
	case netfilter.MarkType, netfilter.StateType, netfilter.StatusType, netfilter.ClassIDType, netfilter.AddrKindType, netfilter.UserType, netfilter.GroupType, netfilter.IntegerType:
		return true
	}
	return false
}

// jhash is the kernel's hash of bytes: Bob Jenkins' lookup3 with the constant
// 0xdeadbeef, read with the small end first.
func jhash(key []byte, seed uint32) uint32 {
	word := func(b []byte) uint32 {
		var n uint32
		for i := min(len(b), 4) - 1; i >= 0; i-- {
			n = n<<8 | uint32(b[i])
		}
		return n
	}
	part := func(b []byte, i int) uint32 {
		if i >= len(b) {
			return 0
		}
		return word(b[i:])
	}
	start := 0xdeadbeef + uint32(len(key)) + seed
	a, b, c := start, start, start
	for len(key) > 12 {
		a += word(key)
		b += word(key[4:])
		c += word(key[8:])
		a, b, c = mix(a, b, c)
		key = key[12:]
	}
	if len(key) == 0 {
		return c
	}
	a += part(key, 0)
	b += part(key, 4)
	c += part(key, 8)
	return final(a, b, c)
}

func rotate(x uint32, n uint) uint32 { return x<<n | x>>(32-n) }

// mix is __jhash_mix of linux/jhash.h.
func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - c) ^ rotate(c, 4)
	c += b
	b = (b - a) ^ rotate(a, 6)
	a += c
	c = (c - b) ^ rotate(b, 8)
	b += a
	a = (a - c) ^ rotate(c, 16)
	c += b
	b = (b - a) ^ rotate(a, 19)
	a += c
	c = (c - b) ^ rotate(b, 4)
	b += a
	return a, b, c
}

// final is __jhash_final of linux/jhash.h.
func final(a, b, c uint32) uint32 {
	c = (c ^ b) - rotate(b, 14)
	a = (a ^ c) - rotate(c, 11)
	b = (b ^ a) - rotate(a, 25)
	c = (c ^ b) - rotate(b, 16)
	a = (a ^ c) - rotate(c, 4)
	b = (b ^ a) - rotate(a, 14)
	c = (c ^ b) - rotate(b, 24)
	return c
}
