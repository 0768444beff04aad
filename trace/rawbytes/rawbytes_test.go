package rawbytes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"portolan/netfilter"
)

// packet is a TCP segment to port 80, whose length and identification are not known.
func packet() *Image {
	im := NewImage(40)
	im.Put(0, 0x45, 0)
	im.Put(6, 0, 0, 64, 6)
	im.Put16(22, 80)
	return &im
}

// ins is an instruction as tcpdump -ddd prints it.
func ins(op uint16, jt, jf uint8, k uint32) netfilter.BPFInstruction {
	return netfilter.BPFInstruction{Op: op, JT: jt, JF: jf, K: k}
}

// Programs as tcpdump makes them, and what they say where bytes are not known.
func TestBPF(t *testing.T) {
	yes, no := ins(6, 0, 0, 1), ins(6, 0, 0, 0)
	for name, c := range map[string]struct {
		program []netfilter.BPFInstruction
		want    Answer
	}{
		"ip proto 6":                   {[]netfilter.BPFInstruction{ins(48, 0, 0, 9), ins(21, 0, 1, 6), yes, no}, Yes},
		"ip proto 17":                  {[]netfilter.BPFInstruction{ins(48, 0, 0, 9), ins(21, 0, 1, 17), yes, no}, No},
		"dst port 80, by 4*(ip[0]&15)": {[]netfilter.BPFInstruction{ins(177, 0, 0, 0), ins(72, 0, 0, 2), ins(21, 0, 1, 80), yes, no}, Yes},
		"ip[2:2] > 100":                {[]netfilter.BPFInstruction{ins(40, 0, 0, 2), ins(37, 0, 1, 100), yes, no}, Unknown},
		"ip[2:2] & 0 is 0":             {[]netfilter.BPFInstruction{ins(40, 0, 0, 2), ins(84, 0, 0, 0), ins(21, 0, 1, 0), yes, no}, Yes},
		"beyond the packet":            {[]netfilter.BPFInstruction{ins(32, 0, 0, 38), yes}, No},
		"the length":                   {[]netfilter.BPFInstruction{ins(128, 0, 0, 0), ins(22, 0, 0, 0)}, Unknown},
		"through memory and X":         {[]netfilter.BPFInstruction{ins(48, 0, 0, 8), ins(2, 0, 0, 3), ins(97, 0, 0, 3), ins(0, 0, 0, 64), ins(29, 0, 1, 0), yes, no}, Yes},
		"no end":                       {nil, No},
	} {
		if got := packet().BPF(c.program); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A test that moves its base by a byte that is not known cannot tell.
func TestU32(t *testing.T) {
	step := func(op byte, n uint32) netfilter.U32Step { return netfilter.U32Step{Op: op, Number: n} }
	for name, c := range map[string]struct {
		steps []netfilter.U32Step
		want  Answer
	}{
		"dst port, by the length of the IP header": {[]netfilter.U32Step{step('=', 0), step('>', 22), step('&', 0x3c), step('@', 0), step('&', 0xffff)}, Yes},
		"TTL":               {[]netfilter.U32Step{step('=', 8), step('>', 24)}, No},
		"total length":      {[]netfilter.U32Step{step('=', 0), step('&', 0xffff)}, Unknown},
		"by a total length": {[]netfilter.U32Step{step('=', 0), step('&', 0xffff), step('@', 0)}, Unknown},
		"beyond the packet": {[]netfilter.U32Step{step('=', 37)}, No},
	} {
		test := netfilter.U32Test{Steps: c.steps, Ranges: []netfilter.NumberRange{{First: 80, Last: 80}}}
		if got := packet().U32(test); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// Who knows less says the same or Unknown.
func TestKnowingLess(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ops := []uint16{0, 1, 32, 40, 48, 64, 72, 80, 96, 97, 177, 2, 3, 4, 20, 28, 36, 52, 68, 84, 92, 100, 116, 132, 148, 164, 5, 21, 29, 37, 53, 69, 77, 6, 22, 7, 135}
	answers := map[Answer]int{}
	for range 200_000 {
		whole := NewImage(24)
		for i := range whole.Data {
			whole.Put(i, byte(random.UintN(4)))
		}
		part := Image{slices.Clone(whole.Data), slices.Clone(whole.Known)}
		for i := range part.Known {
			part.Known[i] = byte(random.UintN(256) | random.UintN(256))
		}
		program := make([]netfilter.BPFInstruction, 2+random.IntN(8))
		for i := range program {
			program[i] = ins(ops[random.IntN(len(ops))], uint8(random.UintN(3)), uint8(random.UintN(3)), uint32(random.UintN(20)))
		}
		if known, got := whole.BPF(program), part.BPF(program); got != Unknown && got != known {
			t.Fatalf("%v\nof %v: %d, and with %v known: %d", program, whole.Data, known, part.Known, got)
		} else {
			answers[got]++
		}
	}
	if len(answers) != 3 {
		t.Errorf("answers %v: some are never given", answers)
	}
}
