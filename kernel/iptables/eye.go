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
)

// watchedTables are those that an eye looks at.
var watchedTables = [...]string{"filter", "nat", "mangle"}

// sight is what an eye sees. Two equal sights mean most likely that nothing
// changed in between: see eye.look.
type sight struct {
	nft    uint32
	legacy [len(watchedTables)]tableInfo
}

// eye looks at the tables of the network namespace in which it was opened. It
// writes its own messages because no stable program or library tells a change of
// a table without listing it.
type eye struct {
	family  Family
	variant Variant
	socket  int
	names   *os.File // /proc/net/ip_tables_names
	asked   uint32   // number of the last request
}

func openEye(f Family, v Variant) (*eye, error) {
	e := &eye{family: f, variant: v}
	var err error
	if v == NFT {
		e.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return nil, fmt.Errorf("iptables: watch: netlink socket: %w", err)
		}
		if err := unix.SetsockoptTimeval(e.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
			unix.Close(e.socket)
			return nil, fmt.Errorf("iptables: watch: netlink socket: %w", err)
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

func (e *eye) close() error {
	err := unix.Close(e.socket)
	if e.names != nil {
		err = errors.Join(err, e.names.Close())
	}
	return err
}

// look sees, of nft, the number of the ruleset, which every transaction that
// changes any table of any family makes one greater. Of legacy it sees the
// number and size of the entries of each table and where its hooks begin, so
// that a rule that was exchanged for one of the same size is not seen.
func (e *eye) look() (sight, error) {
	var s sight
	var err error
	if e.variant == NFT {
		s.nft, err = e.generation()
		return s, err
	}
	present, err := e.tableNames()
	if err != nil {
		return s, err
	}
	for i, table := range watchedTables {
		// To ask for a table that is not there would make it.
		if !slices.Contains(present, table) {
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
// name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size.
const (
	infoEntries = 32 + 4 + 5*4 + 5*4
	infoSize    = infoEntries + 4 + 4
	getInfo     = 64
)

// tableInfo is that structure; zero for a table that is not there or as good as
// not there.
type tableInfo [infoSize]byte

// emptyTable is the number of entries of watchedTables without chains and rules:
// one for the policy of each hook, and one that ends the table.
var emptyTable = [len(watchedTables)]int{4, 5, 6}

func (i tableInfo) entries() int { return int(binary.NativeEndian.Uint32(i[infoEntries:])) }

func (e *eye) tableInfo(table string) (info tableInfo, err error) {
	copy(info[:31], table)
	size := uint32(len(info))
	level := unix.SOL_IP
	if e.family == IPv6 {
		level = unix.SOL_IPV6
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(e.socket), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, fmt.Errorf("iptables: watch: info of table %s: %w", table, errno)
	}
	return info, nil
}

// generation asks with NFT_MSG_GETGEN.
func (e *eye) generation() (uint32, error) {
	const (
		getGen, newGen = 16, 15
		subsystem      = unix.NFNL_SUBSYS_NFTABLES << 8
		header         = unix.SizeofNlMsghdr + 4
	)
	e.asked++
	request := make([]byte, header)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], subsystem|getGen)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(request[8:], e.asked)
	if err := unix.Sendto(e.socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("iptables: watch: ask for generation: %w", err)
	}
	reply := make([]byte, 4096)
	for {
		n, _, err := unix.Recvfrom(e.socket, reply, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, fmt.Errorf("iptables: watch: read generation: %w", err)
		case n < header:
			return 0, fmt.Errorf("iptables: watch: answer of %d bytes to a request for the generation", n)
		case binary.NativeEndian.Uint32(reply[8:]) != e.asked:
			continue // the answer to a request that was given up
		case binary.NativeEndian.Uint16(reply[4:]) != subsystem|newGen:
			return 0, errors.New("iptables: watch: the kernel does not tell the generation")
		}
		return generationID(reply[header:n])
	}
}

// generationID finds NFTA_GEN_ID.
func generationID(attrs []byte) (uint32, error) {
	const genID = 1
	for len(attrs) >= 4 {
		size := int(binary.NativeEndian.Uint16(attrs))
		if size < 4 || size > len(attrs) {
			break
		}
		if binary.NativeEndian.Uint16(attrs[2:]) == genID && size == 8 {
			return binary.BigEndian.Uint32(attrs[4:]), nil
		}
		attrs = attrs[min((size+3)&^3, len(attrs)):]
	}
	return 0, errors.New("iptables: watch: answer holds no generation")
}
