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
	buf  []byte
}

// Heard is what a Listener tells of a transaction.
type Heard struct {
	// Program is the first 15 bytes of the name of the program that committed it;
	// empty when that is not known.
	Program string
	// Removed tells whether something was taken away, or may have been.
	Removed bool
}

// Listen starts to hear the changes that are not made through c. The filter is
// in the kernel, so that large batches of our own do not crowd out what matters.
func (c *Conn) Listen() (*Listener, error) { return listen(notFrom(c.port)) }

// ListenCommits starts to hear that transactions end, of anybody and of any table,
// and nothing of what is in them.
func ListenCommits() (*Listener, error) { return listen(onlyGenerations()) }

func listen(filter []unix.SockFilter) (*Listener, error) {
	fd, _, err := socket()
	if err != nil {
		return nil, err
	}
	growBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, receiveSocket)
	if err := errors.Join(
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
		unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES),
		unix.SetNonblock(fd, true),
	); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("nft: listen for changes: %w", err)
	}
	return &Listener{file: os.NewFile(uintptr(fd), "nft changes"), buf: make([]byte, receiveSize)}, nil
}

// notFrom filters out messages of one sender: all of a datagram come from the
// same, and the header of the first says from whom.
func notFrom(port uint32) []unix.SockFilter {
	const sender = 12 // nlmsg_pid
	var native [4]byte
	binary.NativeEndian.PutUint32(native[:], port)
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: sender}, // loads big endian
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: binary.BigEndian.Uint32(native[:])},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
	}
}

// onlyGenerations lets through what ends a transaction; it comes in a datagram of
// its own.
func onlyGenerations() []unix.SockFilter {
	const kind = 4 // nlmsg_type
	var native [2]byte
	binary.NativeEndian.PutUint16(native[:], newGeneration)
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: kind}, // loads big endian
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 0, Jf: 1, K: uint32(binary.BigEndian.Uint16(native[:]))},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0xffffffff},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
}

const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// Wait returns when a transaction of somebody else changed the table, or may have:
// when more happened than could be heard. It ends with the context.
func (l *Listener) Wait(ctx context.Context, t Table) (Heard, error) {
	var heard Heard
	concerned := false
	for {
		complete, err := l.receive(ctx)
		switch {
		case err != nil:
			return Heard{}, err
		case !complete:
			return Heard{Removed: true}, nil
		}
		for m := range messages(l.buf) {
			switch {
			case about(m, t):
				concerned, heard.Removed = true, heard.Removed || removes(m)
			case concerned && m.typ == newGeneration:
				heard.Program = programOf(m)
				return heard, nil
			}
		}
	}
}

// Commit returns when somebody ends a transaction. It ends with the context.
func (l *Listener) Commit(ctx context.Context) (Heard, error) {
	heard := Heard{Removed: true}
	complete, err := l.receive(ctx)
	if err != nil || !complete {
		return heard, err
	}
	for m := range messages(l.buf) {
		heard.Program = programOf(m)
	}
	return heard, nil
}

// receive reads a datagram into buf. It is not complete when others got lost
// before it.
func (l *Listener) receive(ctx context.Context) (complete bool, err error) {
	var ended atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		ended.Store(true)
		_ = l.file.Close() // all that is left to do with it
	})
	defer stop()
	raw, err := l.file.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("nft: listen for changes: %w", err)
	}
	for {
		n := 0
		var received error
		err := raw.Read(func(fd uintptr) bool {
			n, _, received = unix.Recvfrom(int(fd), l.buf[:cap(l.buf)], unix.MSG_DONTWAIT)
			return received != unix.EAGAIN
		})
		switch {
		case ended.Load():
			return false, ctx.Err()
		case err != nil:
			return false, fmt.Errorf("nft: listen for changes: %w", err)
		case received == unix.ENOBUFS:
			return false, nil
		case received == unix.EINTR:
			continue
		case received != nil:
			return false, fmt.Errorf("nft: listen for changes: %w", received)
		}
		l.buf = l.buf[:n]
		return true, nil
	}
}

// about tells whether a notification is about the table. The first attribute of
// every object but the generation is the name of its table.
func about(m message, t Table) bool {
	if m.typ>>8 != unix.NFNL_SUBSYS_NFTABLES || m.typ == newGeneration || len(m.body) < 4 || Family(m.body[0]) != t.Family {
		return false
	}
	for typ, value := range attributes(m.body[4:]) {
		if typ == 1 {
			return textOf(value) == t.Name
		}
	}
	return false
}

func removes(m message) bool {
	switch m.typ & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM:
		return false
	}
	return true
}

// programOf finds NFTA_GEN_PROC_NAME.
func programOf(m message) string {
	const procName = 3
	if len(m.body) < 4 {
		return ""
	}
	f := fieldsOf(m.body[4:])
	return textOf(f[procName])
}

// Close ends the Listener.
func (l *Listener) Close() error { return l.file.Close() }
