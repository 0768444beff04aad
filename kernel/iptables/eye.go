package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
)

// watchedTables are those that an eye looks at.
var watchedTables = [...]string{"filter", "nat", "mangle"}

// sight is what an eye sees. Two equal sights mean most likely that nothing
// changed in between: see eye.look.
type sight struct {
	nft    uint32
	legacy [len(watchedTables)]tableInfo
}

// lostSince tells whether a built-in chain of a legacy table has fewer rules than
// before.
func (s sight) lostSince(before sight) bool {
	for i := range s.legacy {
		if s.legacy[i].lostSince(before.legacy[i]) {
			return true
		}
	}
	return false
}

// eye looks at the tables of the network namespace in which it was opened. It
// asks the kernel by itself because no stable program or library tells a change of
// a legacy table without listing it.
type eye struct {
	family  Family
	variant Variant

	conn    *nft.Conn     // of NFT, as the next
	commits *nft.Listener //

	socket int      // of Legacy, as what follows
	names  *os.File // /proc/net/ip_tables_names
	loaded [len(watchedTables)]bool
}

// openEye opens what is needed to look at one variant: a socket of nf_tables for NFT, and
// for Legacy the list of tables in /proc and a raw socket, which its getsockopt calls go
// through. The namespace is that of the calling thread.
func openEye(f Family, v Variant) (*eye, error) {
	e := &eye{family: f, variant: v}
	var err error
	if v == NFT {
		if e.conn, err = nft.Dial(); err == nil {
			if e.commits, err = nft.ListenCommits(); err != nil {
				e.conn.Close()
			}
		}
		if err != nil {
			return nil, fmt.Errorf("iptables: watch: %w", err)
		}
		return e, nil
	}
	// thread-self, because a namespace belongs to a thread.
	domain, file := unix.AF_INET, "/proc/thread-self/net/ip_tables_names"
	if f == IPv6 {
		domain, file = unix.AF_INET6, "/proc/thread-self/net/ip6_tables_names"
	}
	if e.names, err = os.Open(file); err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	if e.socket, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
		e.names.Close()
		return nil, fmt.Errorf("iptables: watch: raw socket: %w", err)
	}
	return e, nil
}

// close ends the looking, and the wait for commits.
func (e *eye) close() error {
	if e.variant == Legacy {
		return errors.Join(unix.Close(e.socket), e.names.Close())
	}
	err := e.commits.Close()
	if errors.Is(err, os.ErrClosed) { // the end of a context did
		err = nil
	}
	return errors.Join(err, e.conn.Close())
}

// look sees, of nft, the number of the ruleset, which every transaction that
// changes any table of any family makes one greater. Of legacy it sees the
// number and size of the entries of each table and where its hooks begin, so
// that a rule that was exchanged for one of the same size is not seen.
func (e *eye) look() (sight, error) {
	var s sight
	var err error
	if e.variant == NFT {
		if s.nft, err = e.conn.Generation(); err != nil {
			err = fmt.Errorf("iptables: watch: %w", err)
		}
		return s, err
	}
	if err := e.findTables(); err != nil {
		return s, err
	}
	for i, table := range watchedTables {
		if !e.loaded[i] {
			continue
		}
		if s.legacy[i], err = e.tableInfo(table); err != nil {
			return s, err
		}
		if s.legacy[i].entries() == emptyTable[i] {
			s.legacy[i] = tableInfo{} // as before somebody only listed it
		}
	}
	return s, nil
}

// findTables finds the tables that are there: to ask for another one would make it.
func (e *eye) findTables() error {
	if !slices.Contains(e.loaded[:], false) {
		return nil
	}
	present, err := e.tableNames()
	for i, table := range watchedTables {
		e.loaded[i] = e.loaded[i] || slices.Contains(present, table)
	}
	return err
}

// tableNames reads which legacy tables are loaded, afresh each time.
func (e *eye) tableNames() ([]string, error) {
	if _, err := e.names.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	text, err := io.ReadAll(e.names)
	if err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	return strings.Fields(string(text)), nil
}

// struct ipt_getinfo of linux/netfilter_ipv4/ip_tables.h, the same in IPv6:
// name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size. The rules
// of a built-in chain lie between its hook_entry and its underflow.
const (
	hooks         = 5
	infoHooks     = 32 + 4
	infoUnderflow = infoHooks + hooks*4
	infoEntries   = infoUnderflow + hooks*4
	infoSize      = infoEntries + 4 + 4
	getInfo       = 64
)

// tableInfo is that structure; zero for a table that is not there or as good as
// not there.
type tableInfo [infoSize]byte

// emptyTable is the number of entries of watchedTables without chains and rules:
// one for the policy of each hook, and one that ends the table.
var emptyTable = [len(watchedTables)]int{4, 5, 6}

func (i tableInfo) entries() int { return i.number(infoEntries) }

func (i tableInfo) number(at int) int { return int(binary.NativeEndian.Uint32(i[at:])) }

// lostSince tells whether the rules of a built-in chain take less room than before.
func (i tableInfo) lostSince(before tableInfo) bool {
	for h := range hooks {
		room := func(i tableInfo) int { return i.number(infoUnderflow+4*h) - i.number(infoHooks+4*h) }
		if room(i) < room(before) {
			return true
		}
	}
	return false
}

// tableInfo asks for IPT_SO_GET_INFO, which has the sizes and hooks of a table and not its
// rules.
func (e *eye) tableInfo(table string) (info tableInfo, err error) {
	copy(info[:31], table)
	size := uint32(len(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(e.socket), uintptr(e.level()), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, fmt.Errorf("iptables: watch: info of table %s: %w", table, errno)
	}
	return info, nil
}

// level is that of the socket options that ask for tables.
func (e *eye) level() int {
	if e.family == IPv6 {
		return unix.SOL_IPV6
	}
	return unix.SOL_IP
}
