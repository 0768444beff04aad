package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Listener hears what changes in the tables of the network namespace in which
// it was made.
type Listener struct {
	file *os.File
	own  uint32
	buf  []byte
}

// Listen starts to hear the changes that are not made through c. The filter is
// in the kernel, so that large batches of our own do not crowd out what matters.
func (c *Conn) Listen() (*Listener, error) {
	fd, _, err := socket()
	if err != nil {
		return nil, err
	}
	growBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveSocket)
	if err := errors.Join(
		notFrom(fd, c.port),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES),
		unix.SetNonblock(fd, true),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("nft: listen for changes: %w", err)
	}
	return &Listener{file: os.NewFile(uintptr(fd), "nft changes"), own: c.port, buf: make([]byte, receiveSize)}, nil
}

// notFrom filters out messages of one sender: all of a datagram come from the
// same, and the header of the first says from whom.
func notFrom(fd int, port uint32) error {
	const sender = 12 // nlmsg_pid
	var native [4]byte
	binary.NativeEndian.PutUint32(native[:], port)
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sender}, // loads big endian
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: binary.BigEndian.Uint32(native[:])},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// Wait returns when somebody else changed the table, or may have: when more
// happened than could be heard. It ends with the context.
func (l *Listener) Wait(ctx context.Context, t Table) error {
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = l.file.Close() // all that is left to do with it
	})
	defer stop()
	raw, err := l.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("nft: listen for changes: %w", err)
	}
	for {
		n := 0
		var received error
		err := raw.Read(func(fd uintptr) bool {
			n, _, received = unix.Recvfrom(int(fd), l.buf, unix.MSG_DONTWAIT)
			return received != unix.EAGAIN
		})
		switch {
		case ended.Load():
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("nft: listen for changes: %w", err)
		case received == unix.ENOBUFS:
			return nil
		case received == unix.EINTR:
			continue
		case received != nil:
			return fmt.Errorf("nft: listen for changes: %w", received)
		}
		for m := range messages(l.buf[:n]) {
			if about(m, t) {
				return nil
			}
		}
	}
}

// about tells whether a notification is about the table. The first attribute of
// every object but the generation is the name of its table.
func about(m message, t Table) bool {
	if m.typ>>8 != unix.NFNL_SUBSYS_NFTABLES || m.typ&0xff == unix.NFT_MSG_NEWGEN || len(m.body) < 4 || Family(m.body[0]) != t.Family {
		return false
	}
	for typ, value := range attributes(m.body[4:]) {
		if typ == 1 {
			return textOf(value) == t.Name
		}
	}
	return false
}

// Close ends the Listener.
func (l *Listener) Close() error { return l.file.Close() }
