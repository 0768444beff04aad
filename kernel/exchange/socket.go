// Package exchange sends single requests to the kernel and reads the answers, for
// rooms that need no more of netlink. No call takes longer than a few seconds.
package exchange

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Socket is bound to the network namespace of the thread that dialled, and not safe
// for use by several goroutines.
type Socket struct {
	fd   int
	seq  uint32
	recv []byte
}

const (
	// The kernel makes the messages of a dump as large as the largest buffer that
	// was offered, up to 32 KiB.
	receiveSize = 64 << 10

	// patience is how long the kernel may take to answer. It answers before the
	// call that sends returns, so this only keeps a bug from hanging us.
	patience = 5 * time.Second
)

// Dial opens a Socket of a protocol, such as unix.NETLINK_GENERIC.
func Dial(protocol int) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, fmt.Errorf("exchange: open socket: %w", err)
	}
	s, err := newSocket(fd, patience)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("exchange: set up socket: %w", err)
	}
	return s, nil
}

func newSocket(fd int, patience time.Duration) (*Socket, error) {
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	err := errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit))
	return &Socket{fd: fd, recv: make([]byte, receiveSize)}, err
}

// Close ends the Socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// Request sends a message of a type and returns when it is answered in full. Each
// gets the answers without the netlink header, valid until it returns. An error of
// the kernel is a unix.Errno; one that does not
// answer is unix.ETIMEDOUT.
func (s *Socket) Request(typ, flags uint16, body []byte, each func([]byte)) error {
	s.seq++
	m := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(m, uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(m[4:], typ)
	binary.NativeEndian.PutUint16(m[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
	binary.NativeEndian.PutUint32(m[8:], s.seq)
	m = append(m, body...)
	if _, err := retry(func() (int, error) { return 0, unix.Send(s.fd, m, 0) }); err != nil {
		return err
	}
	for {
		n, err := retry(func() (int, error) {
			n, _, err := unix.Recvfrom(s.fd, s.recv, unix.MSG_TRUNC)
			return n, err
		})
		switch {
		case err != nil:
			return err
		case n > len(s.recv):
			return fmt.Errorf("a message of %d bytes does not fit in %d", n, len(s.recv))
		}
		if done, err := s.answers(s.recv[:n], each); done || err != nil {
			return err
		}
	}
}

// retry does a system call again when a signal came, and words a time-out.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, fmt.Errorf("no answer from the kernel: %w", unix.ETIMEDOUT)
		default:
			return n, err
		}
	}
}

// answers reads one datagram; done tells that the request is answered. What answers
// an earlier request, after its time-out, is passed over.
func (s *Socket) answers(b []byte, each func([]byte)) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.NLMSG_HDRLEN || length > len(b) {
			return true, errors.New("a message is cut off")
		}
		typ, body := binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:length]
		ours := binary.NativeEndian.Uint32(b[8:]) == s.seq
		b = b[min((length+3)&^3, len(b)):]
		switch {
		case !ours:
		case (typ == unix.NLMSG_ERROR || typ == unix.NLMSG_DONE) && len(body) >= 4:
			if errno := -int32(binary.NativeEndian.Uint32(body)); errno != 0 {
				return true, unix.Errno(errno)
			}
			return true, nil
		default:
			each(body)
		}
	}
	return false, nil
}
