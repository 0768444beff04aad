package nft

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// writer appends netlink messages to a buffer.
type writer struct{ buf []byte }

func (w *writer) pad() {
	for len(w.buf)&3 != 0 {
		w.buf = append(w.buf, 0)
	}
}

func (w *writer) header(typ uint16, length int) {
	var h [4]byte
	binary.NativeEndian.PutUint16(h[:], uint16(4+length))
	binary.NativeEndian.PutUint16(h[2:], typ)
	w.buf = append(w.buf, h[:]...)
}

func (w *writer) bytes(typ uint16, data []byte) {
	w.header(typ, len(data))
	w.buf = append(w.buf, data...)
	w.pad()
}

func (w *writer) text(typ uint16, s string) {
	w.header(typ, len(s)+1)
	w.buf = append(append(w.buf, s...), 0)
	w.pad()
}

func (w *writer) u32(typ uint16, v uint32) {
	w.header(typ, 4)
	w.buf = binary.BigEndian.AppendUint32(w.buf, v)
}

func (w *writer) u64(typ uint16, v uint64) {
	w.header(typ, 8)
	w.buf = binary.BigEndian.AppendUint64(w.buf, v)
}

// nest opens an attribute that holds others; the returned position closes it.
func (w *writer) nest(typ uint16) int {
	at := len(w.buf)
	w.header(typ|unix.NLA_F_NESTED, 0)
	return at
}

func (w *writer) close(at int) {
	binary.NativeEndian.PutUint16(w.buf[at:], uint16(len(w.buf)-at))
}

// attributes yields type and content of each attribute. A cut-off rest is
// passed over.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			length := int(binary.NativeEndian.Uint16(b))
			if length < 4 || length > len(b) {
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(typ, b[4:length]) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// u32Of and u64Of read an integer, 0 when it has another size.
func u32Of(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func u64Of(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// textOf reads a string up to its terminating zero.
func textOf(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
