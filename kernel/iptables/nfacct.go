package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Messages and attributes of nfnetlink_acct (linux/netfilter/nfnetlink_acct.h).
const (
	acctNew, acctGet      = 0, 1
	acctName, acctPackets = 1, 2
	acctHeader            = unix.SizeofNlMsghdr + 4 // with struct nfgenmsg
)

// EnsureCounter makes the nfacct object in this network namespace unless it is
// there; its count is kept. It fails where the kernel has no nfnetlink_acct.
// The message is our own because neither a library in use nor iptables makes
// such objects, and the nfacct program is rarely installed.
func EnsureCounter(name string) error {
	_, err := acct(acctNew, unix.NLM_F_ACK|unix.NLM_F_CREATE, name)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) { // these say that it is there
		return nil
	}
	return err
}

// ReadCounter returns the packets that an nfacct object of this network namespace
// has counted. The error is os.ErrNotExist where there is none.
func ReadCounter(name string) (uint64, error) {
	reply, err := acct(acctGet, 0, name)
	if err != nil {
		return 0, err
	}
	for len(reply) >= 4 {
		size, kind := int(binary.NativeEndian.Uint16(reply)), binary.NativeEndian.Uint16(reply[2:])
		if size < 4 || size > len(reply) {
			break
		}
		if kind&^unix.NLA_F_NET_BYTEORDER == acctPackets && size >= 12 {
			return binary.BigEndian.Uint64(reply[4:]), nil
		}
		reply = reply[min((size+3)&^3, len(reply)):]
	}
	return 0, fmt.Errorf("iptables: counter %s: the kernel does not say how much it counted", name)
}

// acct sends one message and returns the attributes of the answer, or the error
// that it is.
func acct(message uint16, flags uint16, name string) ([]byte, error) {
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("iptables: counter %s: %w", name, err) }
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fail(err)
	}
	defer unix.Close(socket)
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fail(err)
	}
	if err := unix.Sendto(socket, acctRequest(message, flags, name), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fail(err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, reply, 0)
	switch {
	case err != nil:
		return fail(err)
	case n < acctHeader:
		return fail(errors.New("unexpected answer"))
	case binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR:
		return reply[acctHeader:n], nil
	}
	if errno := unix.Errno(-int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:]))); errno != 0 {
		return fail(errno)
	}
	return nil, nil
}

// acctRequest is a message with NFACCT_NAME.
func acctRequest(message, flags uint16, name string) []byte {
	attr := 4 + len(name) + 1
	b := make([]byte, acctHeader+(attr+3)&^3)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.NFNL_SUBSYS_ACCT<<8|message)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint16(b[acctHeader:], uint16(attr))
	binary.NativeEndian.PutUint16(b[acctHeader+2:], acctName)
	copy(b[acctHeader+4:], name)
	return b
}
