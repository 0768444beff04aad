package nftables

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"portolan/kernel/nft"
)

// collection holds the elements of one set, of which there may be hundreds of
// thousands: their bytes are in one piece of memory, and each has its place there.
type collection struct {
	list []place
	room []byte
}

// place is where the key, the end of the key and the data of an element are, one
// behind the other from at on.
type place struct {
	at             int
	key, end, data uint8 // bytes
	verdict        *nft.Verdict
	comment        string
}

func (c *collection) reset() { c.list, c.room = c.list[:0], c.room[:0] }

func (c *collection) add(e nft.Element) {
	if c.list == nil {
		c.list, c.room = make([]place, 0, 256), make([]byte, 0, 4<<10)
	}
	c.list = append(c.list, place{len(c.room), uint8(len(e.Key)), uint8(len(e.KeyEnd)), uint8(len(e.Data)), e.Verdict, e.Comment})
	c.room = append(append(append(c.room, e.Key...), e.KeyEnd...), e.Data...)
}

// keyOf, endOf and dataOf are the parts of what was added, empty for what it does not
// have.
func (c *collection) keyOf(p place) []byte { return c.room[p.at : p.at+int(p.key)] }

func (c *collection) endOf(p place) []byte {
	at := p.at + int(p.key)
	return c.room[at : at+int(p.end)]
}

func (c *collection) dataOf(p place) []byte {
	at := p.at + int(p.key) + int(p.end)
	return c.room[at : at+int(p.data)]
}

// objectsOf turns elements into names and bodies as Render writes them.
func (b *Backend) objectsOf(s *shape, c *collection) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if s.isSlots() || s.ranges {
			b.grouped(s, c, yield)
			return
		}
		for _, p := range c.list {
			if !yield(b.plain(s, c, p)) {
				return
			}
		}
	}
}

// plain is an element that is an object by itself.
func (b *Backend) plain(s *shape, c *collection, e place) (name, body string) {
	if s.key[0] == number {
		id := binary.NativeEndian.Uint32(c.keyOf(e))
		if name = e.comment; name == "" || !b.ids.fits(name, id) {
			name = fmt.Sprintf("#%d", id)
		}
		b.ids.learn(name, id)
	} else {
		text := b.words.keyText(nil, s.key, c.keyOf(e))
		name = string(text)
	}
	switch s.holds {
	case aVerdict:
		return name, name + " : " + verdictText(e.verdict)
	case aChain:
		return name, name + " : goto " + b.named(c.dataOf(e))
	case aScope:
		return name, name + " : " + b.named(c.dataOf(e))
	}
	return name, name
}

// named is what a number stands for.
func (b *Backend) named(data []byte) string {
	id := binary.NativeEndian.Uint32(data)
	if name := b.ids.name(id); name != "" {
		return name
	}
	return fmt.Sprintf("#%d", id)
}

// grouped puts the elements together that belong to one frontend.
func (b *Backend) grouped(s *shape, c *collection, yield func(string, string) bool) {
	front := len(s.key) - 1
	cut := 0
	for _, p := range s.key[:front] {
		_, length := b.words.partType(p)
		cut += (length + 3) &^ 3
	}
	slices.SortFunc(c.list, func(p, q place) int {
		x, y := c.keyOf(p), c.keyOf(q)
		if order := bytes.Compare(x[:cut], y[:cut]); order != 0 {
			return order
		}
		if s.ranges {
			return bytes.Compare(x[cut:], y[cut:])
		}
		return cmp.Compare(binary.NativeEndian.Uint32(x[cut:]), binary.NativeEndian.Uint32(y[cut:]))
	})
	var text []byte
	for list := c.list; len(list) > 0; {
		first := c.keyOf(list[0])[:cut]
		n := 1
		for n < len(list) && bytes.Equal(c.keyOf(list[n])[:cut], first) {
			n++
		}
		text = b.words.keyText(text[:0], s.key[:front], first)
		end := len(text)
		text = append(text, " : "...)
		if s.ranges {
			text = b.rangesText(text, c, list[:n], cut)
		} else {
			text = b.slotsText(text, c, list[:n], cut)
		}
		both := string(text)
		if !yield(both[:end], both[end:]) {
			return
		}
		list = list[n:]
	}
}

// slotsText writes endpoints by slot, as Render does; a slot that is not the next is named.
func (b *Backend) slotsText(out []byte, c *collection, list []place, cut int) []byte {
	next := uint32(0)
	from := len(out)
	for _, e := range list {
		at := binary.NativeEndian.Uint32(c.keyOf(e)[cut:])
		switch {
		case at >= localSlots && next < localSlots:
			out, next = append(out, " | "...), localSlots
		case len(out) > from:
			out = append(out, ", "...)
		}
		if at != next {
			out = fmt.Appendf(out, "%d=", at)
		}
		out = b.words.keyText(out, endpointParts, c.dataOf(e))
		next = at + 1
	}
	return out
}

// rangesText writes source ranges as Render does.
func (b *Backend) rangesText(out []byte, c *collection, list []place, cut int) []byte {
	for i, e := range list {
		if i > 0 {
			out = append(out, ", "...)
		}
		from, _ := netip.AddrFromSlice(c.keyOf(e)[cut:])
		end := c.endOf(e)
		if len(end) == 0 {
			end = c.keyOf(e)
		}
		to, _ := netip.AddrFromSlice(end[cut:])
		out = append(out, rangeText(from, to)...)
	}
	return out
}
