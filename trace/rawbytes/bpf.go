package rawbytes

import "portolan/netfilter"

// The parts of the code of an instruction, and what they mean (linux/bpf_common.h and
// linux/filter.h).
const (
	partClass  = 0x07
	partSize   = 0x18
	partMode   = 0xe0
	partOp     = 0xf0
	partSource = 0x08 // the operand is X, else K
	partReturn = 0x18
	partMove   = 0xf8
)

const (
	classLoad   = 0x00
	classLoadX  = 0x01
	classStore  = 0x02
	classStoreX = 0x03
	classALU    = 0x04
	classJump   = 0x05
	classReturn = 0x06
	classMove   = 0x07

	sizeWord = 0x00
	sizeHalf = 0x08
	sizeByte = 0x10

	modeImmediate = 0x00
	modeAbsolute  = 0x20
	modeIndirect  = 0x40
	modeMemory    = 0x60
	modeMSH       = 0xa0 // four times the lower half of a byte: the length of an IPv4 header

	opAdd    = 0x00
	opSub    = 0x10
	opMul    = 0x20
	opDiv    = 0x30
	opOr     = 0x40
	opAnd    = 0x50
	opLeft   = 0x60
	opRight  = 0x70
	opNegate = 0x80
	opMod    = 0x90
	opXor    = 0xa0

	jumpAlways    = 0x00
	jumpEqual     = 0x10
	jumpGreater   = 0x20
	jumpNotLess   = 0x30
	jumpAnyBit    = 0x40
	returnA       = 0x10
	moveToX       = 0x00
	words         = 16         // of memory
	ancillary     = 0xfffff000 // offsets from here on ask for what is no byte of the packet
	longestAlways = 1 << 16    // an unconditional jump this far leaves every program
)

// machine is a classic BPF machine that knows what it does not know.
type machine struct {
	image  *Image
	a, x   partial
	memory [words]partial
}

// BPF runs a program of classic BPF. It says Yes for a return value other than 0.
func (im *Image) BPF(program []netfilter.BPFInstruction) Answer {
	m := machine{image: im}
	for at := 0; at < len(program); at++ {
		in := program[at]
		operand := exactly(in.K)
		if in.Op&partSource != 0 {
			operand = m.x
		}
		switch in.Op & partClass {
		case classLoad, classLoadX:
			v, loaded := m.load(in)
			if loaded != Yes {
				return loaded
			}
			*m.register(in.Op&partClass == classLoad) = v
		case classStore, classStoreX:
			if in.K >= words {
				return No
			}
			m.memory[in.K] = *m.register(in.Op&partClass == classStore)
		case classALU:
			m.a = alu(in.Op&partOp, m.a, operand)
		case classJump:
			skip, known := m.jump(in, operand)
			if !known {
				return Unknown
			}
			at += int(skip)
		case classReturn:
			return m.result(in)
		case classMove:
			if in.Op&partMove == moveToX {
				m.x = m.a
			} else {
				m.a = m.x
			}
		}
	}
	return No
}

// register is A or X.
func (m *machine) register(a bool) *partial {
	if a {
		return &m.a
	}
	return &m.x
}

// load says No when it reads out of bounds, which ends the program with 0, and Unknown when
// it is not known where it reads.
func (m *machine) load(in netfilter.BPFInstruction) (v partial, loaded Answer) {
	size := map[uint16]int{sizeWord: 4, sizeHalf: 2, sizeByte: 1}[in.Op&partSize]
	ok := true
	switch in.Op & partMode {
	case modeImmediate:
		return exactly(in.K), Yes
	case modeAbsolute:
		if in.K >= ancillary {
			return partial{}, Yes
		}
		v, ok = m.image.load(in.K, size)
	case modeIndirect:
		if !m.x.sure() {
			return partial{}, Unknown
		}
		v, ok = m.image.load(m.x.bits+in.K, size)
	case modeMemory:
		if in.K < words {
			v = m.memory[in.K]
		}
	case modeMSH:
		v, ok = m.image.load(in.K, 1)
		v = v.and(exactly(0x0f)).left(2)
	} // of others, the length of the packet and the like, nothing is known
	if !ok {
		return partial{}, No
	}
	return v, Yes
}

// alu is an arithmetic instruction on values of which only some bits may be known. A
// division by zero is not known.
func alu(op uint16, a, b partial) partial {
	if !b.sure() {
		return partial{}
	}
	switch op {
	case opAnd:
		return a.and(b)
	case opLeft:
		return a.left(b.bits)
	case opRight:
		return a.right(b.bits)
	}
	if !a.sure() {
		return partial{}
	}
	switch op {
	case opAdd:
		return exactly(a.bits + b.bits)
	case opSub:
		return exactly(a.bits - b.bits)
	case opMul:
		return exactly(a.bits * b.bits)
	case opDiv:
		if b.bits != 0 {
			return exactly(a.bits / b.bits)
		}
	case opOr:
		return exactly(a.bits | b.bits)
	case opNegate:
		return exactly(-a.bits)
	case opMod:
		if b.bits != 0 {
			return exactly(a.bits % b.bits)
		}
	case opXor:
		return exactly(a.bits ^ b.bits)
	}
	return partial{}
}

// jump gives the number of instructions to skip, where that is known.
func (m *machine) jump(in netfilter.BPFInstruction, b partial) (skip uint32, known bool) {
	a, known := m.a, m.a.sure() && b.sure()
	var holds bool
	switch in.Op & partOp {
	case jumpAlways:
		return min(in.K, longestAlways), true
	case jumpEqual:
		holds = a.bits == b.bits
		if both := a.known & b.known; a.bits&both != b.bits&both {
			known = true // some bit that is known of both differs
		}
	case jumpGreater:
		holds = a.bits > b.bits
	case jumpNotLess:
		holds = a.bits >= b.bits
	case jumpAnyBit:
		holds = a.bits&b.bits != 0
		known = known || holds || (b.sure() && b.bits&^a.known == 0)
	}
	if holds {
		return uint32(in.JT), known
	}
	return uint32(in.JF), known
}

// result is the end of a program.
func (m *machine) result(in netfilter.BPFInstruction) Answer {
	value := exactly(in.K)
	if in.Op&partReturn == returnA {
		value = m.a
	}
	switch {
	case value.bits != 0:
		return Yes
	case value.sure():
		return No
	}
	return Unknown
}
