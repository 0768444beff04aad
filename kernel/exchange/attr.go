package exchange

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Attributes is a list of attributes that is written. Numbers are in the order of
// this machine unless a method says otherwise.
type Attributes []byte

// Bytes adds an attribute; typ may carry flags.
func (a *Attributes) Bytes(typ uint16, data []byte) {
	var h [4]byte
	binary.NativeEndian.PutUint16(h[:], uint16(4+len(data)))
	binary.NativeEndian.PutUint16(h[2:], typ)
	*a = append(append(*a, h[:]...), data...)
	for len(*a)&3 != 0 {
		*a = append(*a, 0)
	}
}

// Text adds a string with its zero.
func (a *Attributes) Text(typ uint16, s string) { a.Bytes(typ, append([]byte(s), 0)) }

// Uint8 adds a number.
func (a *Attributes) Uint8(typ uint16, v uint8) { a.Bytes(typ, []byte{v}) }

// Uint16 adds a number.
func (a *Attributes) Uint16(typ, v uint16) { a.Bytes(typ, binary.NativeEndian.AppendUint16(nil, v)) }

// Uint32 adds a number.
func (a *Attributes) Uint32(typ uint16, v uint32) {
	a.Bytes(typ, binary.NativeEndian.AppendUint32(nil, v))
}

// Net16 adds a number in network order.
func (a *Attributes) Net16(typ, v uint16) { a.Bytes(typ, binary.BigEndian.AppendUint16(nil, v)) }

// Net32 adds a number in network order.
func (a *Attributes) Net32(typ uint16, v uint32) {
	a.Bytes(typ, binary.BigEndian.AppendUint32(nil, v))
}

// Nested adds an attribute that holds others.
func (a *Attributes) Nested(typ uint16, inner Attributes) { a.Bytes(typ|unix.NLA_F_NESTED, inner) }

// ByType collects attributes that were received, by type without flags; of two of one
// type the last counts.
func ByType(b []byte) map[uint16][]byte {
	out := map[uint16][]byte{}
	for typ, value := range netlink.Attributes(b) {
		out[typ] = value
	}
	return out
}

// The readers of numbers give 0 for what is too short.

// Uint8 reads a number.
func Uint8(b []byte) uint8 {
	if len(b) < 1 {
		return 0
	}
	return b[0]
}

// Uint16 reads a number.
func Uint16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.NativeEndian.Uint16(b)
}

// Uint32 reads a number.
func Uint32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

// Net16 reads a number in network order.
func Net16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// Net32 reads a number in network order.
func Net32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}
