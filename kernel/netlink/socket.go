package netlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sizes in bytes. The kernel restarts its walk over a hash table for each
// message of a dump, and makes messages as large as the largest buffer that was
// offered: with 4 KiB a dump of 250,000 set elements takes 26 s, from 32 KiB on 3 s
// (seen on 6.18). The socket buffer holds an error for each message of a batch.
const (
	receiveSize   = 64 << 10
	receiveSocket = 8 << 20
	sendSocket    = 4 << 20
)

// answerWithin is how long the kernel may take to answer. It answers before the
// call that sends returns, so this only keeps a bug from hanging the program.
const answerWithin = 30 // seconds

// Socket asks and hears answers. It is bound to the network namespace of the thread
// that opened it, and not safe for use by several goroutines.
type Socket struct {
	fd      int
	port    uint32 // this socket's netlink address
	sendBuf int    // what the kernel lets us send at once
	recv    []byte
}

// Open opens a Socket.
func Open() (*Socket, error) {
	fd, port, err := bind()
	if err != nil {
		return nil, err
	}
	s := On(fd)
	s.port = port
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerWithin}),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set up netlink socket: %w", err)
	}
	growBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveSocket)
	s.growSend(sendSocket)
	return s, nil
}

// On is a Socket over a descriptor that speaks netlink and has no address.
func On(fd int) *Socket { return &Socket{fd: fd, recv: make([]byte, receiveSize)} }

// bind opens a socket whose port number the kernel chooses, and asks which it is.
func bind() (fd int, port uint32, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, 0, fmt.Errorf("open netlink socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		var name unix.Sockaddr
		if name, err = unix.Getsockname(fd); err == nil {
			return fd, name.(*unix.SockaddrNetlink).Pid, nil
		}
	}
	unix.Close(fd)
	return -1, 0, fmt.Errorf("bind netlink socket: %w", err)
}

// growBuffer asks for a socket buffer, past the limit of the host where we may.
func growBuffer(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size) // what we get shows when it is used
	}
}

// growSend makes room to send size bytes at once.
func (s *Socket) growSend(size int) {
	if size <= s.sendBuf {
		return
	}
	growBuffer(s.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, size)
	s.sendBuf = size
}

// Close ends the Socket.
func (s *Socket) Close() error { return unix.Close(s.fd) }

// PortID is the netlink address of the Socket; notifications about what it changes
// carry it.
func (s *Socket) PortID() uint32 { return s.port }

// Send sends what may be several messages.
func (s *Socket) Send(b []byte) error {
	s.growSend(len(b) + len(b)/2 + 4096)
	for {
		_, err := unix.Write(s.fd, b) // a datagram, as a whole; to the kernel when nobody else is named
		if err != unix.EINTR {
			return err
		}
	}
}

// ErrNothing: there is nothing to receive.
var ErrNothing = errors.New("nothing to receive")

// Receive reads one datagram, valid until the next. Without wait it returns ErrNothing
// when there is none.
func (s *Socket) Receive(wait bool) ([]byte, error) {
	flags := 0
	if !wait {
		flags = unix.MSG_DONTWAIT
	}
	for {
		n, _, err := unix.Recvfrom(s.fd, s.recv, flags|unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && !wait:
			return nil, ErrNothing
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("no answer from the kernel within %d s", answerWithin)
		case err != nil:
			return nil, fmt.Errorf("receive: %w", err)
		case n > len(s.recv):
			return nil, fmt.Errorf("receive: a message of %d bytes does not fit in %d", n, len(s.recv))
		}
		return s.recv[:n], nil
	}
}
