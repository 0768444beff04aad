package netlink

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

const attrHeader = unix.SizeofNlAttr

// Writer appends messages and attributes to a buffer. Integers are big endian, as in
// all of netfilter but where it says otherwise.
type Writer struct{ Buf []byte }

// Begin opens a message: its header and struct nfgenmsg. The returned position ends
// it.
func (w *Writer) Begin(typ, flags uint16, seq uint32, family byte, resource uint16) int {
	at := len(w.Buf)
	var h [HeaderSize + genSize]byte
	binary.NativeEndian.PutUint16(h[4:], typ)
	binary.NativeEndian.PutUint16(h[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(h[8:], seq)
	h[HeaderSize] = family
	binary.BigEndian.PutUint16(h[HeaderSize+2:], resource)
	w.Buf = append(w.Buf, h[:]...)
	return at
}

// End ends the message that begins there.
func (w *Writer) End(message int) {
	binary.NativeEndian.PutUint32(w.Buf[message:], uint32(len(w.Buf)-message))
}

func (w *Writer) pad() {
	for len(w.Buf)&3 != 0 {
		w.Buf = append(w.Buf, 0)
	}
}

func (w *Writer) header(typ uint16, length int) {
	var h [attrHeader]byte
	binary.NativeEndian.PutUint16(h[:], uint16(attrHeader+length))
	binary.NativeEndian.PutUint16(h[2:], typ)
	w.Buf = append(w.Buf, h[:]...)
}

// Bytes writes an attribute as it is.
func (w *Writer) Bytes(typ uint16, data []byte) {
	w.header(typ, len(data))
	w.Buf = append(w.Buf, data...)
	w.pad()
}

// Text writes a string and its terminating zero.
func (w *Writer) Text(typ uint16, s string) {
	w.header(typ, len(s)+1)
	w.Buf = append(append(w.Buf, s...), 0)
	w.pad()
}

// U8 writes an integer.
func (w *Writer) U8(typ uint16, v uint8) {
	w.header(typ, 1)
	w.Buf = append(w.Buf, v)
	w.pad()
}

// U16 writes an integer.
func (w *Writer) U16(typ, v uint16) {
	w.header(typ, 2)
	w.Buf = binary.BigEndian.AppendUint16(w.Buf, v)
	w.pad()
}

// U32 writes an integer.
func (w *Writer) U32(typ uint16, v uint32) {
	w.header(typ, 4)
	w.Buf = binary.BigEndian.AppendUint32(w.Buf, v)
}

// U64 writes an integer.
func (w *Writer) U64(typ uint16, v uint64) {
	w.header(typ, 8)
	w.Buf = binary.BigEndian.AppendUint64(w.Buf, v)
}

// Nest opens an attribute that holds others; the returned position closes it.
func (w *Writer) Nest(typ uint16) int {
	at := len(w.Buf)
	w.header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// Close closes the attribute that was opened there.
func (w *Writer) Close(at int) {
	binary.NativeEndian.PutUint16(w.Buf[at:], uint16(len(w.Buf)-at))
}

// Attributes yields type and content of each attribute. A cut-off rest is passed
// over.
func Attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= attrHeader {
			length := int(binary.NativeEndian.Uint16(b))
			if length < attrHeader || length > len(b) {
				return
			}
			typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
			if !yield(typ, b[attrHeader:length]) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// U16 reads an integer, 0 when it has another size.
func U16(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// U32 reads an integer, 0 when it has another size.
func U32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// U64 reads an integer, 0 when it has another size.
func U64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Text reads a string up to its terminating zero.
func Text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
