package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Generation identifies a state of the tables that a Watch looks at. Two equal
// Generations mean most likely that nothing changed: see Watch.Look.
type Generation struct {
	nft    uint32
	legacy [3][infoSize]byte
}

// Watch looks at the tables of the network namespace in which it was opened.
// It is not safe for use by several goroutines.
type Watch struct {
	family  Family
	variant Variant
	socket  int
	names   *os.File // /proc/net/ip_tables_names
}

// Watch opens a Watch. It writes its own messages because no stable program or
// library tells a change of a table without listing it.
func (t *Tool) Watch() (*Watch, error) {
	w := &Watch{family: t.Family, variant: t.Variant}
	var err error
	if t.Variant == NFT {
		w.socket, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err == nil {
			err = unix.SetsockoptTimeval(w.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
		}
		if err != nil {
			return nil, fmt.Errorf("iptables: watch: netlink socket: %w", err)
		}
		return w, nil
	}
	// thread-self, because a namespace belongs to a thread.
	domain, file := unix.AF_INET, "/proc/thread-self/net/ip_tables_names"
	if t.Family == IPv6 {
		domain, file = unix.AF_INET6, "/proc/thread-self/net/ip6_tables_names"
	}
	if w.names, err = os.Open(file); err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	if w.socket, err = unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
		w.names.Close()
		return nil, fmt.Errorf("iptables: watch: raw socket: %w", err)
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error {
	err := unix.Close(w.socket)
	if w.names != nil {
		err = errors.Join(err, w.names.Close())
	}
	return err
}

// Look returns the present Generation. Of nft it is the number of the ruleset,
// which every write to any table changes. Of legacy it is the number and size
// of the entries of each table and where its hooks begin, so that a rule that
// was exchanged for one of the same size is not seen.
func (w *Watch) Look() (Generation, error) {
	var g Generation
	var err error
	if w.variant == NFT {
		g.nft, err = nftGeneration(w.socket)
		return g, err
	}
	present, err := w.tableNames()
	if err != nil {
		return g, err
	}
	for i, table := range []string{"filter", "nat", "mangle"} {
		// To ask for a table that is not there would make it.
		if present[table] {
			if g.legacy[i], err = w.tableInfo(table); err != nil {
				return g, err
			}
		}
	}
	return g, nil
}

func (w *Watch) tableNames() (map[string]bool, error) {
	if _, err := w.names.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	text, err := io.ReadAll(w.names)
	if err != nil {
		return nil, fmt.Errorf("iptables: watch: %w", err)
	}
	out := map[string]bool{}
	for name := range strings.FieldsSeq(string(text)) {
		out[name] = true
	}
	return out, nil
}

// struct ipt_getinfo of linux/netfilter_ipv4/ip_tables.h, the same in IPv6:
// name[32], valid_hooks, hook_entry[5], underflow[5], num_entries, size.
const (
	infoSize = 32 + 4 + 5*4 + 5*4 + 4 + 4
	getInfo  = 64
)

func (w *Watch) tableInfo(table string) (info [infoSize]byte, err error) {
	copy(info[:31], table)
	size := uint32(len(info))
	level := unix.SOL_IP
	if w.family == IPv6 {
		level = unix.SOL_IPV6
	}
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(w.socket), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return info, fmt.Errorf("iptables: watch: info of table %s: %w", table, errno)
	}
	return info, nil
}

// nftGeneration asks with NFT_MSG_GETGEN.
func nftGeneration(socket int) (uint32, error) {
	const (
		getGen, newGen = 16, 15
		subsystem      = unix.NFNL_SUBSYS_NFTABLES << 8
		genID          = 1 // NFTA_GEN_ID
		header         = unix.SizeofNlMsghdr + 4
	)
	request := make([]byte, header)
	binary.NativeEndian.PutUint32(request[0:], uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], subsystem|getGen)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST)
	if err := unix.Sendto(socket, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("iptables: watch: ask for generation: %w", err)
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, reply, 0)
	if err != nil {
		return 0, fmt.Errorf("iptables: watch: read generation: %w", err)
	}
	reply = reply[:n]
	if n < header || binary.NativeEndian.Uint16(reply[4:]) != subsystem|newGen {
		return 0, fmt.Errorf("iptables: watch: unexpected answer of %d bytes to a request for the generation", n)
	}
	for attrs := reply[header:]; len(attrs) >= 4; {
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
