package trace

import (
	"portolan/netfilter"
	"portolan/trace/rawbytes"
)

// image builds the packet's headers, as far as they are known.
func (r *run) image() rawbytes.Image {
	p := &r.pkt
	head, l4 := 20, 8
	if p.dst.Is6() {
		head = 40
	}
	if p.proto == netfilter.TCP {
		l4 = 20
	}
	im := rawbytes.NewImage(head + l4)
	if p.dst.Is4() {
		im.Put(0, 0x45, 0)
		im.Put(7, 0) // no fragment: the low bits of the offset
		im.Known[6] = 0x1f
		im.Put(8, byte(p.ttl), p.proto)
		im.PutAddr(12, p.src)
		im.PutAddr(16, p.dst)
	} else {
		im.Put(0, 0x60, 0)
		im.Put(6, p.proto, byte(p.ttl))
		im.PutAddr(8, p.src)
		im.PutAddr(24, p.dst)
	}
	switch {
	case hasPorts(p.proto):
		if p.sport != 0 {
			im.Put16(head, p.sport)
		}
		if p.dport != 0 {
			im.Put16(head+2, p.dport)
		}
		if p.proto == netfilter.TCP {
			im.Put(head+13, p.flags)
		}
	case p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6:
		im.Put(head, p.icmpType, 0)
	}
	return im
}

const bytesUnknown = "it looks at bytes of the packet that are not known"

// u32 runs the tests of -m u32; reading beyond the packet is false.
func (r *run) u32(m netfilter.U32) value {
	im := r.image()
	out := is(true)
	for _, t := range m.Tests {
		switch im.U32(t) {
		case rawbytes.No:
			return value{}
		case rawbytes.Unknown:
			out = value{truth: maybe, key: "u32 " + m.Text, why: bytesUnknown + " (" + m.Text + ")"}
		}
	}
	return out
}

// bpf runs a classic BPF program over the packet; a result other than 0 is
// true.
func (r *run) bpf(m netfilter.BPF) value {
	if m.Code == nil {
		return unsure("a pinned BPF program cannot be run away from its kernel (" + m.Text + ")")
	}
	im := r.image()
	switch im.BPF(m.Code) {
	case rawbytes.Yes:
		return is(true)
	case rawbytes.No:
		return is(false)
	}
	return value{truth: maybe, key: "bpf " + m.Text, why: bytesUnknown}
}
