// Package netlink speaks netlink with the netfilter parts of the kernel, nf_tables and
// conntrack: sockets, messages and attributes. What they mean is for the rooms beside
// it.
package netlink

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// Sizes in bytes: of the netlink header, and of struct nfgenmsg behind it.
const (
	HeaderSize = unix.NLMSG_HDRLEN
	genSize    = 4
)

// Message is one received netlink message.
type Message struct {
	Type, Flags uint16
	Seq         uint32
	Body        []byte // after the netlink header, valid until the next receive
}

// Messages yields what is in one datagram. A cut-off rest is passed over.
func Messages(b []byte) iter.Seq[Message] {
	return func(yield func(Message) bool) {
		for len(b) >= HeaderSize {
			length := int(binary.NativeEndian.Uint32(b))
			if length < HeaderSize || length > len(b) {
				return
			}
			m := Message{
				Type:  binary.NativeEndian.Uint16(b[4:]),
				Flags: binary.NativeEndian.Uint16(b[6:]),
				Seq:   binary.NativeEndian.Uint32(b[8:]),
				Body:  b[HeaderSize:length],
			}
			if !yield(m) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// Attrs are the attributes behind struct nfgenmsg; ok is false where there is none.
func (m Message) Attrs() (attrs []byte, ok bool) {
	if len(m.Body) < genSize {
		return nil, false
	}
	return m.Body[genSize:], true
}

// Errno is what an NLMSG_ERROR or NLMSG_DONE says; 0 is success.
func (m Message) Errno() unix.Errno {
	if len(m.Body) < 4 {
		return 0
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(m.Body)))
}
