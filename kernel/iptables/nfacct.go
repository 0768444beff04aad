package iptables

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// EnsureCounter makes the nfacct object in this network namespace unless it is
// there; its count is kept. It fails where the kernel has no nfnetlink_acct.
// The message is our own because neither a library in use nor iptables makes
// such objects, and the nfacct program is rarely installed.
func EnsureCounter(name string) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("iptables: counter %s: netlink socket: %w", name, err)
	}
	defer unix.Close(socket)
	if err := unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fmt.Errorf("iptables: counter %s: %w", name, err)
	}
	if err := unix.Sendto(socket, counterRequest(name), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("iptables: counter %s: %w", name, err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, reply, 0)
	switch {
	case err != nil:
		return fmt.Errorf("iptables: counter %s: %w", name, err)
	case n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR:
		return fmt.Errorf("iptables: counter %s: unexpected answer", name)
	}
	errno := unix.Errno(-int32(binary.NativeEndian.Uint32(reply[unix.SizeofNlMsghdr:])))
	if errno != 0 && errno != unix.EBUSY && errno != unix.EEXIST { // these say that it is there
		return fmt.Errorf("iptables: counter %s: %w", name, errno)
	}
	return nil
}

// counterRequest is NFNL_MSG_ACCT_NEW with NFACCT_NAME.
func counterRequest(name string) []byte {
	const newCounter, nameAttr, header = 0, 1, unix.SizeofNlMsghdr + 4
	attr := 4 + len(name) + 1
	b := make([]byte, header+(attr+3)&^3)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.NFNL_SUBSYS_ACCT<<8|newCounter)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	binary.NativeEndian.PutUint16(b[header:], uint16(attr))
	binary.NativeEndian.PutUint16(b[header+2:], nameAttr)
	copy(b[header+4:], name)
	return b
}
