package iptables

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// HasChain tells whether a table has a chain of this name. It asks the kernel itself,
// loads no table, and so answers on a host that has none of the programs, too.
func (t *Tool) HasChain(table, chain string) (bool, error) {
	if t.Variant == NFT {
		return t.hasNFT(table, chain)
	}
	if !t.Loaded(table) {
		return false, nil
	}
	e, err := openEye(t.Family, Legacy)
	if err != nil {
		return false, err
	}
	defer e.close()
	entries, err := e.entries(table)
	// A chain begins with an entry that holds its name and a zero byte; a jump holds
	// a place and no name (struct xt_error_target of linux/netfilter/x_tables.h).
	return bytes.Contains(entries, append([]byte(chain), 0)), err
}

// hasNFT asks nf_tables itself whether a chain is there; a program would have to be started.
func (t *Tool) hasNFT(table, chain string) (bool, error) {
	conn, err := nft.Dial()
	if err != nil {
		return false, fmt.Errorf("iptables: %w", err)
	}
	defer conn.Close()
	family := t.nftFamily()
	tables, err := conn.Tables(family)
	if errors.Is(err, unix.EINVAL) { // a kernel without nf_tables
		return false, nil
	}
	if err != nil || !slices.Contains(tables, table) {
		return false, err
	}
	return conn.HasChain(nft.Table{Family: family, Name: table}, chain)
}

// struct ipt_get_entries of linux/netfilter_ipv4/ip_tables.h, the same in IPv6:
// name[32], size, and the entries, which begin at a multiple of 8.
const (
	entriesSize  = 32
	entriesStart = 40
	getEntries   = 65
)

// entries is what a legacy table holds, in the form of the kernel.
func (e *eye) entries(table string) ([]byte, error) {
	for tries := 3; ; tries-- {
		info, err := e.tableInfo(table)
		if err != nil {
			return nil, err
		}
		size := info.number(infoSize - 4)
		buf := make([]byte, entriesStart+size)
		copy(buf[:entriesSize-1], table)
		binary.NativeEndian.PutUint32(buf[entriesSize:], uint32(size))
		length := uint32(len(buf))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(e.socket), uintptr(e.level()), getEntries,
			uintptr(unsafe.Pointer(&buf[0])), uintptr(unsafe.Pointer(&length)), 0)
		switch {
		case errno == 0:
			return buf[entriesStart:], nil
		case errno == unix.EAGAIN && tries > 0: // it was written in between
		default:
			return nil, fmt.Errorf("iptables: entries of table %s: %w", table, errno)
		}
	}
}
