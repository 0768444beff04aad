package trace

import (
	"net/netip"

	"portolan/netfilter"
)

// partial is a number of which only the bits set in known are known; the
// others are 0 in bits.
type partial struct{ bits, known uint32 }

func exactly(n uint32) partial { return partial{n, ^uint32(0)} }

func (p partial) sure() bool { return p.known == ^uint32(0) }

func (p partial) and(q partial) partial {
	zero := (p.known &^ p.bits) | (q.known &^ q.bits)
	return partial{p.bits & q.bits, p.known&q.known | zero}
}

func (p partial) left(n uint32) partial {
	if n > 31 {
		return exactly(0)
	}
	return partial{p.bits << n, p.known<<n | (1<<n - 1)}
}

func (p partial) right(n uint32) partial {
	if n > 31 {
		return exactly(0)
	}
	return partial{p.bits >> n, p.known>>n | ^(^uint32(0) >> n)}
}

// image is the packet as bytes from its IP header on, as far as it is known.
type image struct{ data, known []byte }

func (im *image) put(at int, b ...byte) {
	copy(im.data[at:], b)
	for i := range b {
		im.known[at+i] = 0xff
	}
}

func (im *image) put16(at int, n uint16) { im.put(at, byte(n>>8), byte(n)) }

// load reads size bytes, big end first; ok is false out of bounds.
func (im *image) load(at uint32, size int) (p partial, ok bool) {
	if uint64(at)+uint64(size) > uint64(len(im.data)) {
		return partial{}, false
	}
	p.known = ^uint32(0)
	for i := 0; i < size; i++ {
		p.bits = p.bits<<8 | uint32(im.data[at+uint32(i)])
		p.known = p.known<<8 | uint32(im.known[at+uint32(i)])
	}
	p.bits &= p.known
	return p, true
}

// image builds the packet's headers.
func (r *run) image() image {
	p := &r.pkt
	head, l4 := 20, 8
	if p.dst.Is6() {
		head = 40
	}
	if p.proto == netfilter.TCP {
		l4 = 20
	}
	im := image{make([]byte, head+l4), make([]byte, head+l4)}
	if p.dst.Is4() {
		im.put(0, 0x45, 0)
		im.put(7, 0) // no fragment: the low bits of the offset
		im.known[6] = 0x1f
		im.put(8, byte(p.ttl), p.proto)
		im.address(12, p.src)
		im.address(16, p.dst)
	} else {
		im.put(0, 0x60, 0)
		im.put(6, p.proto, byte(p.ttl))
		im.address(8, p.src)
		im.address(24, p.dst)
	}
	switch {
	case hasPorts(p.proto):
		if p.sport != 0 {
			im.put16(head, p.sport)
		}
		if p.dport != 0 {
			im.put16(head+2, p.dport)
		}
		if p.proto == netfilter.TCP {
			im.put(head+13, p.flags)
		}
	case p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6:
		im.put(head, p.icmpType, 0)
	}
	return im
}

func (im *image) address(at int, a netip.Addr) {
	if a.IsValid() {
		im.put(at, a.AsSlice()...)
	}
}

const bytesUnknown = "it looks at bytes of the packet that are not known"

// u32 runs the tests of -m u32; reading beyond the packet is false.
func (r *run) u32(m netfilter.U32) value {
	im := r.image()
	out := is(true)
	for _, t := range m.Tests {
		switch v := u32Test(im, t); v {
		case no:
			return value{}
		case maybe:
			out = value{truth: maybe, key: "u32 " + m.Text, why: bytesUnknown + " (" + m.Text + ")"}
		}
	}
	return out
}

// u32Test runs one test of the u32 match: steps that load four bytes, mask, shift, or
// move the base ('@'), then the ranges that the result may lie in. A load behind the end
// of the packet does not match.
func u32Test(im image, t netfilter.U32Test) truth {
	var v partial
	base := uint32(0)
	for _, s := range t.Steps {
		var ok = true
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
				return maybe
			}
			base += v.bits
			v, ok = im.load(base+s.Number, 4)
		}
		if !ok {
			return no
		}
	}
	if !v.sure() {
		return maybe
	}
	for _, rng := range t.Ranges {
		if rng.Contains(uint64(v.bits)) {
			return yes
		}
	}
	return no
}

// bpf runs a classic BPF program over the packet; a result other than 0 is
// true.
func (r *run) bpf(m netfilter.BPF) value {
	if m.Code == nil {
		return unsure("a pinned BPF program cannot be run away from its kernel (" + m.Text + ")")
	}
	vm := bpf{im: r.image(), code: m.Code}
	switch vm.run() {
	case yes:
		return is(true)
	case no:
		return is(false)
	}
	return value{truth: maybe, key: "bpf " + m.Text, why: bytesUnknown}
}

// bpf is a classic BPF machine that knows what it does not know.
type bpf struct {
	im   image
	code []netfilter.BPFInstruction
	a, x partial
	mem  [16]partial
}

// The parts of an instruction's code.
const (
	opClass = 0x07
	opSize  = 0x18
	opMode  = 0xe0
	opALU   = 0xf0
	opX     = 0x08
)

// run gives yes for a return value other than 0, maybe when it depends on
// bytes that are not known.
func (vm *bpf) run() truth {
	for pc := 0; pc < len(vm.code); pc++ {
		in := vm.code[pc]
		operand := exactly(in.K)
		if in.Op&opX != 0 {
			operand = vm.x
		}
		ok := true
		switch in.Op & opClass {
		case 0, 1: // ld, ldx
			var v partial
			if v, ok = vm.load(in); ok && in.Op&opClass == 0 {
				vm.a = v
			} else if ok {
				vm.x = v
			}
			if !ok {
				return no
			}
		case 2, 3: // st, stx
			if in.K >= 16 {
				return no
			}
			vm.mem[in.K] = map[uint16]partial{2: vm.a, 3: vm.x}[in.Op&opClass]
		case 4:
			vm.a = alu(in.Op&opALU, vm.a, operand)
		case 5:
			skip, t := vm.jump(in, operand)
			if t == maybe {
				return maybe
			}
			pc += int(skip)
		case 6:
			if in.Op&opSize == 0x10 {
				operand = vm.a
			} else {
				operand = exactly(in.K)
			}
			switch {
			case operand.bits != 0:
				return yes
			case operand.sure():
				return no
			}
			return maybe
		case 7:
			if in.Op&0xf8 == 0 {
				vm.x = vm.a
			} else {
				vm.a = vm.x
			}
		}
	}
	return no
}

// load is false when it reads out of bounds, which ends the program with 0.
func (vm *bpf) load(in netfilter.BPFInstruction) (partial, bool) {
	size := map[uint16]int{0x00: 4, 0x08: 2, 0x10: 1}[in.Op&opSize]
	switch in.Op & opMode {
	case 0x00:
		return exactly(in.K), true
	case 0x20:
		if in.K >= 0xfffff000 {
			return partial{}, true // ancillary data: not known
		}
		return vm.im.load(in.K, size)
	case 0x40:
		if !vm.x.sure() {
			return partial{}, true
		}
		return vm.im.load(vm.x.bits+in.K, size)
	case 0x60:
		if in.K < 16 {
			return vm.mem[in.K], true
		}
	case 0xa0:
		v, ok := vm.im.load(in.K, 1)
		return v.and(exactly(0x0f)).left(2), ok
	}
	return partial{}, true // the length and the like: not known
}

// alu is an arithmetic instruction of classic BPF (linux/bpf_common.h), on values of
// which only some bits may be known. A division by zero is not known.
func alu(op uint16, a, b partial) partial {
	if !b.sure() {
		return partial{}
	}
	switch op {
	case 0x50:
		return a.and(b)
	case 0x60:
		return a.left(b.bits)
	case 0x70:
		return a.right(b.bits)
	}
	if !a.sure() {
		return partial{}
	}
	switch op {
	case 0x00:
		return exactly(a.bits + b.bits)
	case 0x10:
		return exactly(a.bits - b.bits)
	case 0x20:
		return exactly(a.bits * b.bits)
	case 0x30:
		if b.bits != 0 {
			return exactly(a.bits / b.bits)
		}
	case 0x40:
		return exactly(a.bits | b.bits)
	case 0x80:
		return exactly(-a.bits)
	case 0x90:
		if b.bits != 0 {
			return exactly(a.bits % b.bits)
		}
	case 0xa0:
		return exactly(a.bits ^ b.bits)
	}
	return partial{}
}

// jump gives the number of instructions to skip.
func (vm *bpf) jump(in netfilter.BPFInstruction, b partial) (skip uint32, t truth) {
	if in.Op&opALU == 0 {
		return min(in.K, 1<<16), yes
	}
	a, sure := vm.a, vm.a.sure() && b.sure()
	var hold bool
	switch in.Op & opALU {
	case 0x10:
		hold = a.bits == b.bits
		if both := a.known & b.known; !sure && a.bits&both != b.bits&both {
			sure, hold = true, false
		}
	case 0x20:
		hold = a.bits > b.bits
	case 0x30:
		hold = a.bits >= b.bits
	case 0x40:
		hold = a.bits&b.bits != 0
		sure = sure || hold || (b.sure() && b.bits&^a.known == 0)
	}
	switch {
	case !sure:
		return 0, maybe
	case hold:
		return uint32(in.JT), yes
	}
	return uint32(in.JF), yes
}
