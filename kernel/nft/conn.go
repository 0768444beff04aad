package nft

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn is a netlink socket. It is bound to the network namespace of the thread
// that dialled, and not safe for use by several goroutines.
type Conn struct {
	fd      int
	port    uint32 // this socket's netlink address
	seq     uint32
	sendBuf int // what the kernel lets us send at once
	recv    []byte
}

// Sizes in bytes. The kernel restarts its walk over a hash table for each
// message of a dump, and makes messages as large as the largest buffer that was
// offered: with 4 KiB a dump of 250,000 elements takes 26 s, from 32 KiB on 3 s
// (seen on 6.18). The socket buffer holds an error for each message of a batch.
const (
	receiveSize   = 64 << 10
	receiveSocket = 8 << 20
	sendSocket    = 4 << 20
)

// answerWithin is how long the kernel may take to answer. It answers before the
// call that sends returns, so this only keeps a bug from hanging the program.
const answerWithin = 30 // seconds

// Dial opens a Conn.
func Dial() (*Conn, error) {
	fd, port, err := socket()
	if err != nil {
		return nil, err
	}
	c := &Conn{fd: fd, port: port, recv: make([]byte, receiveSize)}
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: answerWithin}),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("nft: set up socket: %w", err)
	}
	growBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveSocket)
	c.growSend(sendSocket)
	return c, nil
}

func socket() (fd int, port uint32, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, 0, fmt.Errorf("nft: open netlink socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		var name unix.Sockaddr
		if name, err = unix.Getsockname(fd); err == nil {
			return fd, name.(*unix.SockaddrNetlink).Pid, nil
		}
	}
	unix.Close(fd)
	return -1, 0, fmt.Errorf("nft: bind netlink socket: %w", err)
}

// growBuffer asks for a socket buffer, past the limit of the host where we may.
func growBuffer(fd, force, plain, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, size) // what we get shows when it is used
	}
}

// growSend makes room to send size bytes at once.
func (c *Conn) growSend(size int) {
	if size <= c.sendBuf {
		return
	}
	growBuffer(c.fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, size)
	c.sendBuf = size
}

// Close ends the Conn.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// PortID is the netlink address of the Conn; notifications about what it writes
// carry it.
func (c *Conn) PortID() uint32 { return c.port }

// send sends what may be several messages.
func (c *Conn) send(b []byte) error {
	c.growSend(len(b) + len(b)/2 + 4096)
	for {
		err := unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// message is one received netlink message.
type message struct {
	typ   uint16
	flags uint16
	seq   uint32
	body  []byte // after the netlink header, valid until the next receive
}

// errNothing: there is nothing more to receive.
var errNothing = errors.New("nothing more")

// receive reads one datagram and yields its messages to each, which returns
// false to stop. Without wait it returns errNothing when there is none.
func (c *Conn) receive(wait bool, each func(message) bool) error {
	flags := 0
	if !wait {
		flags = unix.MSG_DONTWAIT
	}
	var n int
	for {
		var err error
		n, _, err = unix.Recvfrom(c.fd, c.recv, flags|unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && !wait:
			return errNothing
		case err == unix.EAGAIN:
			return fmt.Errorf("nft: no answer from the kernel within %d s", answerWithin)
		case err != nil:
			return fmt.Errorf("nft: receive: %w", err)
		}
		break
	}
	if n > len(c.recv) {
		return fmt.Errorf("nft: receive: a message of %d bytes does not fit in %d", n, len(c.recv))
	}
	for m := range messages(c.recv[:n]) {
		if !each(m) {
			return nil
		}
	}
	return nil
}

const headerSize = unix.NLMSG_HDRLEN // netlink header; nfgenmsg of 4 bytes follows

// messages yields what is in one datagram.
func messages(b []byte) func(func(message) bool) {
	return func(yield func(message) bool) {
		for len(b) >= headerSize {
			length := int(binary.NativeEndian.Uint32(b))
			if length < headerSize || length > len(b) {
				return
			}
			m := message{
				typ:   binary.NativeEndian.Uint16(b[4:]),
				flags: binary.NativeEndian.Uint16(b[6:]),
				seq:   binary.NativeEndian.Uint32(b[8:]),
				body:  b[headerSize:length],
			}
			if !yield(m) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}
