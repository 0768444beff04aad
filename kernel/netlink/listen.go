package netlink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener hears what the kernel tells a group, in the network namespace of the thread
// that made it.
type Listener struct {
	file *os.File
	buf  []byte
}

// Listen starts to hear a group (NFNLGRP_*). Only what the filter lets through takes
// room in the socket's buffer; without one that is everything.
func Listen(group int, filter []unix.SockFilter) (*Listener, error) {
	fd, _, err := bind()
	if err != nil {
		return nil, err
	}
	growBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveSocket)
	if len(filter) > 0 {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	}
	if err := errors.Join(err,
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group),
		unix.SetNonblock(fd, true),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &Listener{file: os.NewFile(uintptr(fd), "netlink"), buf: make([]byte, receiveSize)}, nil
}

// Receive waits for a datagram, valid until the next. It is not complete, and empty,
// when there was more than could be heard. When ctx ends, the Listener is closed.
func (l *Listener) Receive(ctx context.Context) (datagram []byte, complete bool, err error) {
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = l.file.Close() // all that is left to do with it
	})
	defer stop()
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, false, fmt.Errorf("listen: %w", err)
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
			return nil, false, ctx.Err()
		case err != nil:
			return nil, false, fmt.Errorf("listen: %w", err)
		case received == unix.ENOBUFS:
			return nil, false, nil
		case received == unix.EINTR:
			continue
		case received != nil:
			return nil, false, fmt.Errorf("listen: %w", received)
		}
		return l.buf[:n], true, nil
	}
}

// SyscallConn gives access to the socket, as that of os.File does.
func (l *Listener) SyscallConn() (syscall.RawConn, error) { return l.file.SyscallConn() }

// Close ends the Listener.
func (l *Listener) Close() error { return l.file.Close() }
