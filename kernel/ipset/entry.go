// Package ipset reads and writes the sets of addresses and ports (ipset) that rules
// match with, over netlink.
//
// It knows five types of set and nothing of what the sets are for.
package ipset

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Type is a type of set, by the name that ipset gives it.
type Type string

// The types. Each says what an Entry has.
const (
	HashIP        Type = "hash:ip"          // Addr
	HashIPPort    Type = "hash:ip,port"     // Addr, Protocol, Port
	HashIPPortIP  Type = "hash:ip,port,ip"  // and Source, a single address
	HashIPPortNet Type = "hash:ip,port,net" // and Source
	BitmapPort    Type = "bitmap:port"      // Port
)

// Entry is a member of a set.
type Entry struct {
	Addr     netip.Addr
	Protocol uint8
	Port     uint16
	Source   netip.Prefix // never of length 0, which no set takes
}

// The protocols that sets know by name.
var protocols = map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "sctp": unix.IPPROTO_SCTP}

func protocolName(number uint8) string {
	for name, n := range protocols {
		if n == number {
			return name
		}
	}
	return strconv.Itoa(int(number))
}

// Text writes an entry as ipset reads it: "10.0.0.1,tcp:80,10.1.0.0/16".
func (t Type) Text(e Entry) string {
	switch t {
	case BitmapPort:
		return strconv.Itoa(int(e.Port))
	case HashIP:
		return e.Addr.String()
	}
	text := e.Addr.String() + "," + protocolName(e.Protocol) + ":" + strconv.Itoa(int(e.Port))
	switch t {
	case HashIPPort:
		return text
	case HashIPPortIP:
		return text + "," + e.Source.Addr().String()
	case HashIPPortNet:
		return text + "," + e.Source.String()
	}
	panic("ipset: unknown type " + string(t))
}

// Parse reads what Text writes.
func (t Type) Parse(text string) (Entry, error) {
	var e Entry
	bad := func(err error) (Entry, error) {
		return Entry{}, fmt.Errorf("ipset: %q is no entry of a set of type %s: %w", text, t, err)
	}
	port := func(s string) (err error) {
		n, err := strconv.ParseUint(s, 10, 16)
		e.Port = uint16(n)
		return err
	}
	if t == BitmapPort {
		if err := port(text); err != nil {
			return bad(err)
		}
		return e, nil
	}
	parts := strings.Split(text, ",")
	want := map[Type]int{HashIP: 1, HashIPPort: 2, HashIPPortIP: 3, HashIPPortNet: 3}[t]
	if len(parts) != want {
		return bad(fmt.Errorf("it has %d parts, not %d", len(parts), want))
	}
	var err error
	if e.Addr, err = netip.ParseAddr(parts[0]); err != nil {
		return bad(err)
	}
	if want > 1 {
		name, number, _ := strings.Cut(parts[1], ":")
		if e.Protocol = protocols[name]; e.Protocol == 0 {
			return bad(fmt.Errorf("unknown protocol %q", name))
		}
		if err := port(number); err != nil {
			return bad(err)
		}
	}
	if want > 2 {
		if e.Source, err = parseSource(t, parts[2]); err != nil {
			return bad(err)
		}
	}
	return e, nil
}

// parseSource reads the last part of an entry: an address or, for hash:ip,port,net, a
// network, which the kernel does not take of length 0.
func parseSource(t Type, text string) (netip.Prefix, error) {
	if t == HashIPPortIP {
		addr, err := netip.ParseAddr(text)
		return netip.PrefixFrom(addr, addr.BitLen()), err
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Bits() == 0 {
		err = fmt.Errorf("a prefix of length 0")
	}
	return p.Masked(), err
}
