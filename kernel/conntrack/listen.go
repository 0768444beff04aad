package conntrack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Listener hears of the connections that begin in the network namespace in which it
// was made.
type Listener struct {
	file *os.File
	buf  []byte
}

// listenBuffer holds some ten thousand connections that begin while nobody reads, in
// bytes.
const listenBuffer = 8 << 20

// Listen begins to hear. The kernel tells of connections unless
// net.netfilter.nf_conntrack_events is 0.
func Listen() (*Listener, error) {
	s, err := openSocket()
	if err != nil {
		return nil, err
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, listenBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, listenBuffer) // what we get shows when it is used
	}
	if err := errors.Join(
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_CONNTRACK_NEW),
		unix.SetNonblock(s.fd, true),
	); err != nil {
		unix.Close(s.fd)
		return nil, fmt.Errorf("conntrack: listen for new connections: %w", err)
	}
	return &Listener{file: os.NewFile(uintptr(s.fd), "new connections"), buf: s.buf}, nil
}

// ErrLost: more connections began than could be heard of.
var ErrLost = errors.New("conntrack: some new connections were not heard of")

// Hear calls each with the connections that begin, one after the other, until ctx
// ends; then the Listener is closed. An error ErrLost does not end it.
func (l *Listener) Hear(ctx context.Context, each func(Flow, error)) error {
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = l.file.Close() // all that is left to do with it
	})
	defer stop()
	raw, err := l.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("conntrack: listen for new connections: %w", err)
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
			return fmt.Errorf("conntrack: listen for new connections: %w", err)
		case received == unix.EINTR:
			continue
		case received == unix.ENOBUFS:
			each(Flow{}, ErrLost)
			continue
		case received != nil:
			return fmt.Errorf("conntrack: listen for new connections: %w", received)
		}
		for m := range messages(l.buf[:n]) {
			if flow, ok := parseFlow(m.body); ok && m.typ == ctNew {
				each(flow, nil)
			}
		}
	}
}
