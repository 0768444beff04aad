package nft

import "golang.org/x/sys/unix"

// Family is a protocol family as nf_tables numbers it.
type Family uint8

// The families of tables that are written here.
const (
	IPv4 Family = unix.NFPROTO_IPV4
	IPv6 Family = unix.NFPROTO_IPV6
)

func (f Family) String() string {
	if f == IPv6 {
		return "ip6"
	}
	return "ip"
}

// Table names a table.
type Table struct {
	Family Family
	Name   string
}

func (t Table) String() string { return t.Family.String() + " " + t.Name }

// Type is a data type of nft, or up to five of them, 6 bits each, first one
// highest. The kernel keeps it for the one who lists, but for Verdict.
type Type uint32

// Data types of nft, from its datatype.h. In a set each takes a multiple of 4
// bytes.
const (
	TypeInteger Type = 4
	TypeIPv4    Type = 7
	TypeIPv6    Type = 8
	TypeProto   Type = 12
	TypePort    Type = 13
	TypeClassID Type = 23
	// TypeVerdict as data makes a verdict map.
	TypeVerdict Type = 0xffffff00
)

// Concat is the type of a concatenation.
func Concat(types ...Type) (t Type) {
	for _, part := range types {
		t = t<<6 | part
	}
	return t
}

// Flags of a set.
type Flags uint32

// Set flags; a set with a data type is a map without saying so.
const (
	FlagConstant Flags = unix.NFT_SET_CONSTANT
	FlagInterval Flags = unix.NFT_SET_INTERVAL
	FlagMap      Flags = unix.NFT_SET_MAP
	FlagTimeout  Flags = unix.NFT_SET_TIMEOUT
	FlagDynamic  Flags = unix.NFT_SET_EVAL
	FlagConcat   Flags = 0x80 // NFT_SET_CONCAT: intervals in a concatenation
)

// Set is a set or map without its elements.
type Set struct {
	Name              string
	Flags             Flags
	KeyType, DataType Type // DataType 0 for a set
	KeyLen, DataLen   uint32
	// Fields are the lengths of the parts of a key, in bytes, and needed only
	// with FlagInterval.
	Fields []uint32
	Size   uint32 // most elements, 0 for no limit
	// Userdata is for the one who lists; nft keeps the expressions of "typeof"
	// there.
	Userdata []byte
}

// Chain is a chain without its rules.
type Chain struct {
	Name string
	// Type is empty for a chain that only others lead to. Policy of the others
	// is accept.
	Type     string
	Hook     Hook
	Priority int32
}

// Hook is a place on the way of a packet.
type Hook uint32

// The hooks of the families ip and ip6.
const (
	Prerouting  Hook = unix.NF_INET_PRE_ROUTING
	Input       Hook = unix.NF_INET_LOCAL_IN
	Forward     Hook = unix.NF_INET_FORWARD
	Output      Hook = unix.NF_INET_LOCAL_OUT
	Postrouting Hook = unix.NF_INET_POST_ROUTING
)

// Rule is a rule at the end of a chain.
type Rule struct {
	Chain string
	Exprs []Expr
	// Userdata is kept by the kernel and not looked at.
	Userdata []byte
	// Foreign is set on a rule that was read and has something that this package
	// does not know; Exprs are not complete then.
	Foreign bool
}

// Element is an element of a set.
type Element struct {
	Key    []byte
	KeyEnd []byte // of an interval in a concatenation
	Data   []byte // of a map
	// Verdict is the data of a verdict map, where it is not nil.
	Verdict *Verdict
	Comment string
}

// Verdict ends or diverts the way through the rules.
type Verdict struct {
	Code  Code
	Chain string // of Jump and Goto
}

// Code is what a Verdict does.
type Code int32

// The verdicts of nf_tables.
const (
	Drop   Code = 0
	Accept Code = 1
	Jump   Code = unix.NFT_JUMP
	Goto   Code = unix.NFT_GOTO
	Return Code = unix.NFT_RETURN
)
