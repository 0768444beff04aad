package nft

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Listener hears what changes in the tables of the network namespace in which
// it was made.
type Listener struct{ ear *netlink.Listener }

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
func (c *Conn) Listen() (*Listener, error) { return listen(notFrom(c.PortID())) }

// ListenCommits starts to hear that transactions end, of anybody and of any table,
// and nothing of what is in them.
func ListenCommits() (*Listener, error) { return listen(onlyGenerations()) }

func listen(filter []unix.SockFilter) (*Listener, error) {
	ear, err := netlink.Listen(unix.NFNLGRP_NFTABLES, filter)
	if err != nil {
		return nil, fmt.Errorf("nft: changes: %w", err)
	}
	return &Listener{ear}, nil
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
		datagram, complete, err := l.receive(ctx)
		switch {
		case err != nil:
			return Heard{}, err
		case !complete:
			return Heard{Removed: true}, nil
		}
		for m := range netlink.Messages(datagram) {
			switch {
			case about(m, t):
				concerned, heard.Removed = true, heard.Removed || removes(m)
			case concerned && m.Type == newGeneration:
				heard.Program = programOf(m)
				return heard, nil
			}
		}
	}
}

// Commit returns when somebody ends a transaction. It ends with the context.
func (l *Listener) Commit(ctx context.Context) (Heard, error) {
	heard := Heard{Removed: true}
	datagram, complete, err := l.receive(ctx)
	if err != nil || !complete {
		return heard, err
	}
	for m := range netlink.Messages(datagram) {
		heard.Program = programOf(m)
	}
	return heard, nil
}

// receive waits for a datagram. It is not complete when others got lost before it.
func (l *Listener) receive(ctx context.Context) (datagram []byte, complete bool, err error) {
	datagram, complete, err = l.ear.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("nft: changes: %w", err)
	}
	return datagram, complete, err
}

// about tells whether a notification is about the table. The first attribute of
// every object but the generation is the name of its table.
func about(m netlink.Message, t Table) bool {
	if m.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || m.Type == newGeneration || len(m.Body) < 4 || Family(m.Body[0]) != t.Family {
		return false
	}
	for typ, value := range netlink.Attributes(m.Body[4:]) {
		if typ == 1 {
			return netlink.Text(value) == t.Name
		}
	}
	return false
}

func removes(m netlink.Message) bool {
	switch m.Type & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM:
		return false
	}
	return true
}

// programOf finds NFTA_GEN_PROC_NAME.
func programOf(m netlink.Message) string {
	const procName = 3
	if len(m.Body) < 4 {
		return ""
	}
	f := fieldsOf(m.Body[4:])
	return netlink.Text(f[procName])
}

// Close ends the Listener.
func (l *Listener) Close() error { return l.ear.Close() }
