package rawbytes

import "portolan/netfilter"

// U32 runs one test of the u32 match: steps that load four bytes, mask, shift, or
// move the base ('@'), then the ranges that the result may lie in. A load behind the end
// of the packet does not match.
func (im *Image) U32(t netfilter.U32Test) Answer {
	var v partial
	base := uint32(0)
	for _, s := range t.Steps {
		ok := true
		switch s.Op {
		case '=':
			v, ok = im.load(base+s.Number, 4)
		case '&':
			v = v.and(exactly(s.Number))
		case '<':
			v = v.left(s.Number)
		case '>':
			v = v.right(s.Number)
		case '@':
			if !v.sure() {
				return Unknown
			}
			base += v.bits
			v, ok = im.load(base+s.Number, 4)
		}
		if !ok {
			return No
		}
	}
	if !v.sure() {
		return Unknown
	}
	for _, r := range t.Ranges {
		if r.Contains(uint64(v.bits)) {
			return Yes
		}
	}
	return No
}
