package netfilter

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
)

// DataType is the type of a value of nftables. Values are kept as bytes, the
// big end first whatever the machine, so that order and masks mean the same
// for all of them.
type DataType uint8

// The types whose values are understood. Values of an OpaqueType are not.
const (
	OpaqueType DataType = iota
	IntegerType
	IPv4Type
	IPv6Type
	EtherType // a MAC address
	ProtocolType
	PortType
	MarkType
	InterfaceType // a name, padded with zeros
	ClassIDType   // a traffic class, major:minor
	StateType
	StatusType
	DirectionType
	ICMPTypeType
	ICMPv6TypeType
	ICMPCodeType
	ICMPv6CodeType
	AddrKindType
	NFProtoType
	EthernetType // the protocol of a frame
	PacketType
	DSCPType
	ECNType
	TCPFlagType
	BooleanType
	UserType
	GroupType
	VerdictType
)

// dataTypes are nft's names and the sizes in bytes; 0 for those that say the
// size elsewhere.
var dataTypes = [...]struct {
	name  string
	bytes uint8
}{
	OpaqueType: {"", 0}, IntegerType: {"integer", 0}, IPv4Type: {"ipv4_addr", 4}, IPv6Type: {"ipv6_addr", 16}, EtherType: {"ether_addr", 6},
	ProtocolType: {"inet_proto", 1}, PortType: {"inet_service", 2}, MarkType: {"mark", 4}, InterfaceType: {"ifname", 16}, ClassIDType: {"classid", 4},
	StateType: {"ct_state", 4}, StatusType: {"ct_status", 4}, DirectionType: {"ct_dir", 1}, ICMPTypeType: {"icmp_type", 1}, ICMPv6TypeType: {"icmpv6_type", 1},
	ICMPCodeType: {"icmp_code", 1}, ICMPv6CodeType: {"icmpv6_code", 1}, AddrKindType: {"fib_addrtype", 4}, NFProtoType: {"nf_proto", 1}, EthernetType: {"ether_type", 2},
	PacketType: {"pkt_type", 1}, DSCPType: {"dscp", 1}, ECNType: {"ecn", 1}, TCPFlagType: {"tcp_flag", 1}, BooleanType: {"boolean", 1},
	UserType: {"uid", 4}, GroupType: {"gid", 4}, VerdictType: {"verdict", 0},
}

// DataTypeByName finds a type by nft's name for it.
func DataTypeByName(name string) (DataType, bool) {
	for t, d := range dataTypes {
		if d.name == name && name != "" {
			return DataType(t), true
		}
	}
	return OpaqueType, false
}

func (t DataType) String() string {
	if n := dataTypes[t].name; n != "" {
		return n
	}
	return "opaque"
}

// IsFlags reports whether values of the type are sets of flags, which a plain
// comparison in nft tests one by one.
func (t DataType) IsFlags() bool { return t == StateType || t == StatusType || t == TCPFlagType }

// Part is a value's place in a concatenation: its type and size in bytes.
type Part struct {
	Type  DataType
	Bytes uint8
}

// PartOf is a part of a type that has one size only.
func PartOf(t DataType) Part { return Part{t, dataTypes[t].bytes} }

// Width is the size of a concatenation in bytes; known is false when the size
// of a part is not.
func Width(parts []Part) (n int, known bool) {
	known = true
	for _, p := range parts {
		n += int(p.Bytes)
		known = known && p.Bytes > 0
	}
	return n, known
}

// Bytes gives a number as a value of a size.
func Bytes(n uint64, size uint8) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	if size > 8 {
		return strings.Repeat("\x00", int(size)-8) + string(b[:])
	}
	return string(b[8-size:])
}

// Number is a value as a number; of long ones the last eight bytes.
func Number(value string) uint64 {
	var n uint64
	for i := range len(value) {
		n = n<<8 | uint64(value[i])
	}
	return n
}

// AddrBytes gives an address as a value.
func AddrBytes(a netip.Addr) string {
	if a.Is4() {
		b := a.As4()
		return string(b[:])
	}
	b := a.As16()
	return string(b[:])
}

// AddrOf is the address that a value is; it is invalid for values of other
// sizes.
func AddrOf(value string) netip.Addr {
	a, _ := netip.AddrFromSlice([]byte(value))
	return a
}

// NameBytes gives an interface name as a value. A name that ends in "*" is a
// prefix and gives all values that begin so: first to last.
func NameBytes(name string) (first, last string) {
	prefix, wild := strings.CutSuffix(name, "*")
	if !wild {
		prefix = name
	}
	if len(prefix) > 16 {
		prefix = prefix[:16]
	}
	first = prefix + strings.Repeat("\x00", 16-len(prefix))
	if wild {
		return first, prefix + strings.Repeat("\xff", 16-len(prefix))
	}
	return first, first
}

// Format writes a value for people, much as nft does: "10.96.0.10 . tcp . 80".
func Format(parts []Part, value string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteString(" . ")
		}
		if p.Bytes == 0 || int(p.Bytes) > len(value) {
			b.WriteString(value)
			break
		}
		b.WriteString(p.format(value[:p.Bytes]))
		value = value[p.Bytes:]
	}
	return b.String()
}

// format writes a value of one part as nft does.
func (p Part) format(value string) string {
	switch p.Type {
	case IPv4Type, IPv6Type:
		return AddrOf(value).String()
	case ProtocolType:
		return strings.TrimPrefix(ProtoName(value[0]), "proto ")
	case InterfaceType:
		return strings.TrimRight(value, "\x00")
	case MarkType:
		return fmt.Sprintf("0x%x", Number(value))
	case ClassIDType:
		n := Number(value)
		return fmt.Sprintf("%x:%x", n>>16, n&0xffff)
	case EtherType:
		return strings.ReplaceAll(fmt.Sprintf("% x", value), " ", ":")
	}
	if len(value) > 8 {
		return fmt.Sprintf("0x%x", new(big.Int).SetBytes([]byte(value)))
	}
	return fmt.Sprint(Number(value))
}
