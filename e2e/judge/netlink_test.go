package judge

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/lab"
	"portolan/netfilter"
)

// event is one line of the kernel's own rule trace: a rule whose matches were all
// true, an explicit or implicit return, or a chain's policy.
type event struct {
	at     int // its place among all events
	family netfilter.Family
	hook   netfilter.Hook
	table  string
	chain  string
	rule   int // from 1; 0 for a policy
	mark   uint32
	after  bool // mark is that after the rule's target
	in     int  // interface indexes, 0 for none
	out    int
	seen   sighting // the packet as it was then; not in each event of nft
}

// tracer listens to the kernel's rule trace of one node.
type tracer interface {
	// drain gives the events since the last call, in order.
	drain(add func(event)) (some bool, err error)
	close()
}

// netlinkSocket opens a netfilter socket inside a host.
func netlinkSocket(h *lab.Host, groups ...int) (fd int, err error) {
	err = h.Do(func() error {
		if fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomy); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		for _, g := range groups {
			if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, g); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return -1, fmt.Errorf("judge: netlink socket in %s: %w", h.Name, err)
	}
	return fd, nil
}

// message is one netlink message of netfilter.
type message struct {
	kind   uint16
	family netfilter.Family
	attrs  []byte
}

// receive reads what is there; an empty list when nothing is and block is false.
func receive(fd int, block bool, buffer []byte) ([]message, error) {
	flags := unix.MSG_DONTWAIT
	if block {
		flags = 0
	}
	n, _, err := unix.Recvfrom(fd, buffer, flags)
	if errors.Is(err, unix.EAGAIN) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("judge: netlink: %w", err) // ENOBUFS: messages were lost
	}
	var out []message
	for b := buffer[:n]; len(b) >= 16; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < 16 || size > len(b) {
			return nil, fmt.Errorf("judge: netlink: a message of %d bytes in %d", size, len(b))
		}
		m := message{kind: binary.NativeEndian.Uint16(b[4:])}
		switch m.kind {
		case unix.NLMSG_ERROR:
			if code := int32(binary.NativeEndian.Uint32(b[16:])); code != 0 {
				return nil, fmt.Errorf("judge: netlink: %w", unix.Errno(-code))
			}
		case unix.NLMSG_DONE:
		default:
			if size >= 20 {
				m.family, m.attrs = familyOf(b[16]), b[20:size]
			}
		}
		out = append(out, m)
		b = b[min(len(b), (size+3)&^3):]
	}
	return out, nil
}

func familyOf(pf byte) netfilter.Family {
	if pf == unix.AF_INET6 {
		return netfilter.IPv6
	}
	return netfilter.IPv4
}

// request sends one message and waits for what answers it, up to the end of a list
// or an acknowledgement.
func request(fd int, kind uint16, family uint8, group uint16, flags uint16, attrs []byte, each func(message)) error {
	b := make([]byte, 20, 20+len(attrs))
	binary.NativeEndian.PutUint32(b, uint32(20+len(attrs)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	b[16] = family
	binary.BigEndian.PutUint16(b[18:], group)
	if err := unix.Sendto(fd, append(b, attrs...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("judge: netlink: %w", err)
	}
	buffer := make([]byte, 1<<16)
	for {
		list, err := receive(fd, true, buffer)
		if err != nil {
			return err
		}
		for _, m := range list {
			if m.kind == unix.NLMSG_DONE || m.kind == unix.NLMSG_ERROR {
				return nil
			}
			if each != nil { // else a packet, while the listener is not all set
				each(m)
			}
		}
	}
}

// attribute writes one attribute with its padding.
func attribute(kind uint16, value ...byte) []byte {
	b := make([]byte, 4, 8+len(value))
	binary.NativeEndian.PutUint16(b, uint16(4+len(value)))
	binary.NativeEndian.PutUint16(b[2:], kind)
	b = append(b, value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

// attributes calls each for the attributes of a message.
func attributes(b []byte, each func(kind uint16, value []byte)) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return
		}
		each(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[4:size])
		b = b[min(len(b), (size+3)&^3):]
	}
}

// text is a string attribute without its closing zero.
func text(b []byte) string {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}
