package rawbytes

import "net/netip"

// Answer is what a test says of a packet.
type Answer uint8

// The answers. A test that reads beyond the packet has the answer No.
const (
	No Answer = iota
	Yes
	Unknown // it depends on bytes that are not known
)

// Image is a packet from its IP header on, as far as it is known: of a byte the bits that
// are set in Known.
type Image struct{ Data, Known []byte }

// NewImage returns one of so many bytes, of which none is known.
func NewImage(size int) Image { return Image{make([]byte, size), make([]byte, size)} }

// Put notes bytes at an offset.
func (im *Image) Put(at int, b ...byte) {
	copy(im.Data[at:], b)
	for i := range b {
		im.Known[at+i] = 0xff
	}
}

// Put16 notes a number as packets hold it.
func (im *Image) Put16(at int, n uint16) { im.Put(at, byte(n>>8), byte(n)) }

// PutAddr notes an address, if there is one.
func (im *Image) PutAddr(at int, a netip.Addr) {
	if a.IsValid() {
		im.Put(at, a.AsSlice()...)
	}
}

// load reads size bytes, big end first; ok is false out of bounds.
func (im *Image) load(at uint32, size int) (p partial, ok bool) {
	if uint64(at)+uint64(size) > uint64(len(im.Data)) {
		return partial{}, false
	}
	p.known = ^uint32(0)
	for i := range uint32(size) {
		p.bits = p.bits<<8 | uint32(im.Data[at+i])
		p.known = p.known<<8 | uint32(im.Known[at+i])
	}
	p.bits &= p.known
	return p, true
}
