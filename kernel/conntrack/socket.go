package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// receiveSize is what a message of a dump may take, in bytes: the kernel fills up
// to 32 KiB where it is offered as much.
const receiveSize = 64 << 10

// answerWithin is how long the kernel may take to answer, in seconds. It answers
// while it is asked, so this only keeps a bug from hanging the program.
const answerWithin = 30

// socket is a netlink socket of the network namespace in which it was opened.
type socket struct {
	fd  int
	seq uint32
	buf []byte
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("conntrack: open netlink socket: %w", err)
	}
	if err := errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerWithin}),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("conntrack: set up netlink socket: %w", err)
	}
	return &socket{fd: fd, buf: make([]byte, receiveSize)}, nil
}

func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive waits for one datagram and yields its messages; they are valid until
// the next receive.
func (s *socket) receive() (iter.Seq[message], error) {
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("no answer from the kernel within %d s", answerWithin)
		case err != nil:
			return nil, err
		case n > len(s.buf):
			return nil, fmt.Errorf("a message of %d bytes does not fit in %d", n, len(s.buf))
		}
		return messages(s.buf[:n]), nil
	}
}

// message is one received netlink message.
type message struct {
	typ, flags uint16
	seq        uint32
	body       []byte // after the netlink header
}

// messages yields what is in one datagram. A cut-off rest is passed over.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= unix.NLMSG_HDRLEN {
			length := int(binary.NativeEndian.Uint32(b))
			if length < unix.NLMSG_HDRLEN || length > len(b) {
				return
			}
			m := message{
				typ:   binary.NativeEndian.Uint16(b[4:]),
				flags: binary.NativeEndian.Uint16(b[6:]),
				seq:   binary.NativeEndian.Uint32(b[8:]),
				body:  b[unix.NLMSG_HDRLEN:length],
			}
			if !yield(m) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// code is what an NLMSG_ERROR or NLMSG_DONE says, nil for "done".
func (m message) code() error {
	if len(m.body) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(m.body)); n != 0 {
		return unix.Errno(-n)
	}
	return nil
}
