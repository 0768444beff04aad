package ipset

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan/kernel/exchange"
	"portolan/kernel/netlink"
)

// Set is a set without its entries.
type Set struct {
	Name string // at most MaxName bytes
	Type Type
	IPv6 bool
	// MaxElements is how many entries it takes, 0 for the kernel's choice. A
	// bitmap has room for every port.
	MaxElements uint32
}

// MaxName is the longest name that the kernel takes.
const MaxName = 31

// Errors of ipset that mean something to the caller.
var (
	ErrMissing = errors.New("there is no such set")
	ErrFull    = errors.New("the set is full")
	ErrInUse   = errors.New("the set is used by a rule")
)

// Numbers of linux/netfilter/ipset/ip_set.h.
const (
	cmdCreate  = 2
	cmdDestroy = 3
	cmdSwap    = 6
	cmdList    = 7
	cmdAdd     = 9
	cmdDelete  = 10

	attrProtocol = 1
	attrName     = 2
	attrType     = 3 // also the second name
	attrRevision = 4
	attrFamily   = 5
	attrFlags    = 6
	attrData     = 7
	attrEntries  = 8

	dataIP       = 1
	dataPort     = 4
	dataPortTo   = 5
	dataProtocol = 7
	dataMax      = 19
	dataIP2      = 20
	dataPrefix2  = 21
	dataUses     = 25

	addrIPv4 = 1
	addrIPv6 = 2

	protocol   = 6 // every kernel since 2.6.39 takes it
	headerOnly = 1 << 2

	errPrivate    = 4096
	errReferenced = errPrivate + 12
	errFull       = errPrivate + 256
)

// revisions are the first of each type with all that is used: sctp, and a second
// network.
var revisions = map[Type]uint8{HashIP: 0, HashIPPort: 1, HashIPPortIP: 1, HashIPPortNet: 2, BitmapPort: 0}

// Conn reads and writes sets. It is bound to the network namespace of the thread
// that dialled, and not safe for use by several goroutines.
type Conn struct {
	// Writes counts the changes that were asked for.
	Writes int

	socket *exchange.Socket
}

// Dial opens a Conn. The kernel loads its module when it is first used.
func Dial() (*Conn, error) {
	socket, err := exchange.Dial(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("ipset: dial: %w", err)
	}
	return &Conn{socket: socket}, nil
}

// Close ends the Conn.
func (c *Conn) Close() error { return c.socket.Close() }

// request asks about one set and gives each answer without its header. The numbers of
// ipset's own errors become errors of this package.
func (c *Conn) request(command, flags uint16, name string, rest exchange.Attributes, each func([]byte)) error {
	var a exchange.Attributes
	a.Uint8(attrProtocol, protocol)
	a.Text(attrName, name)
	body := append([]byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}, append(a, rest...)...) // nfgenmsg
	err := c.socket.Request(unix.NFNL_SUBSYS_IPSET<<8|command, flags, body, func(answer []byte) {
		if len(answer) >= 4 {
			each(answer[4:])
		}
	})
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ENOENT:
		return ErrMissing
	case errReferenced:
		return ErrInUse
	case errFull:
		return ErrFull
	}
	if errno >= errPrivate {
		return fmt.Errorf("error %d of ipset", int(errno))
	}
	return err
}

func (c *Conn) do(what string, command uint16, name string, rest exchange.Attributes) error {
	c.Writes++
	if err := c.request(command, 0, name, rest, func([]byte) {}); err != nil {
		return fmt.Errorf("ipset: %s set %s: %w", what, name, err)
	}
	return nil
}

// Create makes a set; one of that name and shape that is there is fine.
func (c *Conn) Create(s Set) error {
	var data, rest exchange.Attributes
	if s.Type == BitmapPort {
		data.Net16(dataPort|unix.NLA_F_NET_BYTEORDER, 0)
		data.Net16(dataPortTo|unix.NLA_F_NET_BYTEORDER, 65535)
		rest.Uint8(attrFamily, unix.AF_UNSPEC)
	} else {
		if s.MaxElements > 0 {
			data.Net32(dataMax|unix.NLA_F_NET_BYTEORDER, s.MaxElements)
		}
		rest.Uint8(attrFamily, s.family())
	}
	rest.Text(attrType, string(s.Type))
	rest.Uint8(attrRevision, revisions[s.Type])
	rest.Nested(attrData, data)
	return c.do("create", cmdCreate, s.Name, rest)
}

func (s Set) family() uint8 {
	if s.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// Destroy removes a set; one that is not there is fine. Of a set that rules match
// with the error wraps ErrInUse.
func (c *Conn) Destroy(name string) error {
	if err := c.do("destroy", cmdDestroy, name, nil); !errors.Is(err, ErrMissing) {
		return err
	}
	return nil
}

// Swap exchanges two sets, so that rules match with the other one at once.
func (c *Conn) Swap(name, other string) error {
	var rest exchange.Attributes
	rest.Text(attrType, other)
	return c.do("swap", cmdSwap, name, rest)
}

// Describe tells what a set is like; the error wraps ErrMissing when it is not
// there.
func (c *Conn) Describe(name string) (Set, error) {
	var rest exchange.Attributes
	rest.Net32(attrFlags|unix.NLA_F_NET_BYTEORDER, headerOnly)
	s := Set{Name: name}
	err := c.request(cmdList, unix.NLM_F_DUMP, name, rest, func(answer []byte) {
		a := exchange.ByType(answer)
		if a[attrType] == nil {
			return
		}
		s.Type = Type(netlink.Text(a[attrType]))
		s.IPv6 = exchange.Uint8(a[attrFamily]) == unix.AF_INET6
		s.MaxElements = exchange.Net32(exchange.ByType(a[attrData])[dataMax])
	})
	if err != nil {
		return Set{}, fmt.Errorf("ipset: describe set %s: %w", name, err)
	}
	return s, nil
}

// References is how many rules match with a set; the error wraps ErrMissing when it
// is not there.
func (c *Conn) References(name string) (n uint32, err error) {
	var rest exchange.Attributes
	rest.Net32(attrFlags|unix.NLA_F_NET_BYTEORDER, headerOnly)
	err = c.request(cmdList, unix.NLM_F_DUMP, name, rest, func(answer []byte) {
		if a := exchange.ByType(answer); a[attrData] != nil {
			n = exchange.Net32(exchange.ByType(a[attrData])[dataUses])
		}
	})
	if err != nil {
		return 0, fmt.Errorf("ipset: references of set %s: %w", name, err)
	}
	return n, nil
}

// Entries hands every entry of a set to each, in no order; the error wraps
// ErrMissing when the set is not there.
func (c *Conn) Entries(name string, each func(Entry)) error {
	err := c.request(cmdList, unix.NLM_F_DUMP, name, nil, func(answer []byte) {
		for _, data := range netlink.Attributes(exchange.ByType(answer)[attrEntries]) {
			each(readEntry(data))
		}
	})
	if err != nil {
		return fmt.Errorf("ipset: list set %s: %w", name, err)
	}
	return nil
}

// Add puts an entry into a set; one that is there is fine. The error wraps ErrFull
// when the set takes no more.
func (c *Conn) Add(s Set, e Entry) error { return c.change("add to", cmdAdd, s, e) }

// Delete takes an entry out of a set; one that is not there is fine.
func (c *Conn) Delete(s Set, e Entry) error { return c.change("delete from", cmdDelete, s, e) }

func (c *Conn) change(what string, command uint16, s Set, e Entry) error {
	var rest exchange.Attributes
	rest.Nested(attrData, writeEntry(s.Type, e))
	if err := c.do(what, command, s.Name, rest); err != nil {
		return fmt.Errorf("%w: entry %s", err, s.Type.Text(e))
	}
	return nil
}

// writeEntry writes the attributes that entries of a type have (IPSET_ATTR_* within
// IPSET_ATTR_DATA).
func writeEntry(t Type, e Entry) exchange.Attributes {
	var a exchange.Attributes
	if t != BitmapPort {
		a.Nested(dataIP, writeAddr(e.Addr))
	}
	if t != HashIP {
		a.Net16(dataPort|unix.NLA_F_NET_BYTEORDER, e.Port)
	}
	if t != HashIP && t != BitmapPort {
		a.Uint8(dataProtocol, e.Protocol)
	}
	if t == HashIPPortIP || t == HashIPPortNet {
		a.Nested(dataIP2, writeAddr(e.Source.Addr()))
	}
	if t == HashIPPortNet {
		a.Uint8(dataPrefix2, uint8(e.Source.Bits()))
	}
	return a
}

func writeAddr(addr netip.Addr) exchange.Attributes {
	typ := uint16(addrIPv4)
	if addr.Is6() {
		typ = addrIPv6
	}
	var a exchange.Attributes
	a.Bytes(typ|unix.NLA_F_NET_BYTEORDER, addr.AsSlice())
	return a
}

// readEntry reads what writeEntry writes; a source without a prefix is a single address.
func readEntry(b []byte) Entry {
	a := exchange.ByType(b)
	e := Entry{Addr: readAddr(a[dataIP]), Protocol: exchange.Uint8(a[dataProtocol]), Port: exchange.Net16(a[dataPort])}
	if source := readAddr(a[dataIP2]); source.IsValid() {
		bits := source.BitLen()
		if a[dataPrefix2] != nil {
			bits = int(exchange.Uint8(a[dataPrefix2]))
		}
		e.Source = netip.PrefixFrom(source, bits)
	}
	return e
}

func readAddr(b []byte) netip.Addr {
	for _, value := range netlink.Attributes(b) {
		addr, _ := netip.AddrFromSlice(value) // not valid when it is no address
		return addr
	}
	return netip.Addr{}
}
