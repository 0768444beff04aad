package nft

import (
	"fmt"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Reg is the first of the 16 registers of 4 bytes; NoReg as a target stands for
// the verdict.
const (
	Reg   = unix.NFT_REG32_00
	NoReg = unix.NFT_REG_VERDICT
)

// Expr is one expression of a rule. The closed set of them is what this package
// knows to write and to read. All are comparable with ==, but for those that
// hold bytes, which are strings for that reason.
type Expr interface{ expr() }

// Payload loads bytes of the packet.
type Payload struct{ Base, Offset, Len, Dreg uint32 }

// Bases of Payload.
const (
	NetworkHeader   = unix.NFT_PAYLOAD_NETWORK_HEADER
	TransportHeader = unix.NFT_PAYLOAD_TRANSPORT_HEADER
)

// Meta loads something about the packet.
type Meta struct{ Key, Dreg uint32 }

// MetaSet sets something about the packet.
type MetaSet struct{ Key, Sreg uint32 }

// Ct loads something about the connection.
type Ct struct{ Key, Dreg uint32 }

// Cmp goes on only if a register holds Data, or with Not if it does not.
type Cmp struct {
	Sreg uint32
	Not  bool
	Data string
}

// Bitwise computes Sreg & Mask ^ Xor.
type Bitwise struct {
	Sreg, Dreg uint32
	Mask, Xor  string
}

// Immediate loads a value.
type Immediate struct {
	Dreg uint32
	Data string
}

// Decide gives a verdict.
type Decide struct{ Verdict Verdict }

// Lookup goes on only if the key in Sreg is in the set, or with Not if it is
// not. A map's data goes to Dreg; with Map and NoReg the data is the verdict.
type Lookup struct {
	Set        string
	Sreg, Dreg uint32
	Map, Not   bool
}

// Numgen loads Offset plus a number below Modulus: a random one, or the next.
type Numgen struct {
	Dreg, Modulus, Offset uint32
	Random                bool
}

// Fib loads the type of the source or destination address (RTN_LOCAL and so on).
type Fib struct {
	Dreg   uint32
	Source bool
}

// DNAT rewrites the destination to an address and port in registers.
type DNAT struct {
	Family     Family
	Addr, Port uint32
}

// Masquerade rewrites the source.
type Masquerade struct{ FullyRandom bool }

// Reject answers with ICMP port unreachable.
type Reject struct{ Family Family }

// Counter counts; Packets reads it.
type Counter struct{}

// Update puts an element into a dynamic set or map, or starts its time anew.
type Update struct {
	Set       string
	Key, Data uint32 // registers; Data is NoReg with a set
	Timeout   uint64 // milliseconds
	Count     bool   // the element counts the packets that come here: see Counts
}

func (Payload) expr()    {}
func (Meta) expr()       {}
func (MetaSet) expr()    {}
func (Ct) expr()         {}
func (Cmp) expr()        {}
func (Bitwise) expr()    {}
func (Immediate) expr()  {}
func (Decide) expr()     {}
func (Lookup) expr()     {}
func (Numgen) expr()     {}
func (Fib) expr()        {}
func (DNAT) expr()       {}
func (Masquerade) expr() {}
func (Reject) expr()     {}
func (Counter) expr()    {}
func (Update) expr()     {}

// Flags of the kernel that the expressions above imply.
const (
	natFlags      = unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED
	fullyRandom   = unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY
	lookupInvert  = unix.NFT_LOOKUP_F_INV
	portUnreach4  = 3 // ICMP_PORT_UNREACH
	portUnreach6  = 4 // ICMPV6_PORT_UNREACH
	bitwiseOp     = 6 // NFTA_BITWISE_OP
	fibAddrType   = unix.NFT_FIB_RESULT_ADDRTYPE
	dynsetTimeout = unix.NFTA_DYNSET_TIMEOUT
)

// writeExpr appends one expression to a list.
func writeExpr(w *netlink.Writer, e Expr) {
	element := w.Nest(listElem)
	w.Text(unix.NFTA_EXPR_NAME, exprName(e))
	data := w.Nest(unix.NFTA_EXPR_DATA)
	switch e := e.(type) {
	case Payload:
		w.U32(unix.NFTA_PAYLOAD_DREG, e.Dreg)
		w.U32(unix.NFTA_PAYLOAD_BASE, e.Base)
		w.U32(unix.NFTA_PAYLOAD_OFFSET, e.Offset)
		w.U32(unix.NFTA_PAYLOAD_LEN, e.Len)
	case Meta:
		w.U32(unix.NFTA_META_KEY, e.Key)
		w.U32(unix.NFTA_META_DREG, e.Dreg)
	case MetaSet:
		w.U32(unix.NFTA_META_KEY, e.Key)
		w.U32(unix.NFTA_META_SREG, e.Sreg)
	case Ct:
		w.U32(unix.NFTA_CT_KEY, e.Key)
		w.U32(unix.NFTA_CT_DREG, e.Dreg)
	case Cmp:
		w.U32(unix.NFTA_CMP_SREG, e.Sreg)
		w.U32(unix.NFTA_CMP_OP, uint32(pick(e.Not, unix.NFT_CMP_NEQ, unix.NFT_CMP_EQ)))
		writeValue(w, unix.NFTA_CMP_DATA, []byte(e.Data))
	case Bitwise:
		w.U32(unix.NFTA_BITWISE_SREG, e.Sreg)
		w.U32(unix.NFTA_BITWISE_DREG, e.Dreg)
		w.U32(unix.NFTA_BITWISE_LEN, uint32(len(e.Mask)))
		writeValue(w, unix.NFTA_BITWISE_MASK, []byte(e.Mask))
		writeValue(w, unix.NFTA_BITWISE_XOR, []byte(e.Xor))
	case Immediate:
		w.U32(unix.NFTA_IMMEDIATE_DREG, e.Dreg)
		writeValue(w, unix.NFTA_IMMEDIATE_DATA, []byte(e.Data))
	case Decide:
		w.U32(unix.NFTA_IMMEDIATE_DREG, NoReg)
		at := w.Nest(unix.NFTA_IMMEDIATE_DATA)
		writeVerdict(w, e.Verdict)
		w.Close(at)
	default:
		writeStatement(w, e)
	}
	w.Close(data)
	w.Close(element)
}

// writeStatement goes on where writeExpr ends: with the attributes of lookups, generators,
// and what acts on the packet or a set.
func writeStatement(w *netlink.Writer, e Expr) {
	switch e := e.(type) {
	case Lookup:
		w.Text(unix.NFTA_LOOKUP_SET, e.Set)
		w.U32(unix.NFTA_LOOKUP_SREG, e.Sreg)
		if e.Map {
			w.U32(unix.NFTA_LOOKUP_DREG, e.Dreg)
		}
		if e.Not {
			w.U32(unix.NFTA_LOOKUP_FLAGS, lookupInvert)
		}
	case Numgen:
		w.U32(unix.NFTA_NG_DREG, e.Dreg)
		w.U32(unix.NFTA_NG_MODULUS, e.Modulus)
		w.U32(unix.NFTA_NG_TYPE, uint32(pick(e.Random, unix.NFT_NG_RANDOM, unix.NFT_NG_INCREMENTAL)))
		w.U32(unix.NFTA_NG_OFFSET, e.Offset)
	case Fib:
		w.U32(unix.NFTA_FIB_DREG, e.Dreg)
		w.U32(unix.NFTA_FIB_RESULT, fibAddrType)
		w.U32(unix.NFTA_FIB_FLAGS, uint32(pick(e.Source, unix.NFTA_FIB_F_SADDR, unix.NFTA_FIB_F_DADDR)))
	case DNAT:
		w.U32(unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
		w.U32(unix.NFTA_NAT_FAMILY, uint32(e.Family))
		w.U32(unix.NFTA_NAT_REG_ADDR_MIN, e.Addr)
		w.U32(unix.NFTA_NAT_REG_ADDR_MAX, e.Addr)
		w.U32(unix.NFTA_NAT_REG_PROTO_MIN, e.Port)
		w.U32(unix.NFTA_NAT_REG_PROTO_MAX, e.Port)
		w.U32(unix.NFTA_NAT_FLAGS, natFlags)
	case Masquerade:
		if e.FullyRandom {
			w.U32(unix.NFTA_MASQ_FLAGS, fullyRandom)
		}
	case Reject:
		w.U32(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMP_UNREACH)
		w.Bytes(unix.NFTA_REJECT_ICMP_CODE, []byte{e.code()})
	case Counter:
	case Update:
		w.Text(unix.NFTA_DYNSET_SET_NAME, e.Set)
		w.U32(unix.NFTA_DYNSET_OP, unix.NFT_DYNSET_OP_UPDATE)
		w.U32(unix.NFTA_DYNSET_SREG_KEY, e.Key)
		if e.Data != NoReg {
			w.U32(unix.NFTA_DYNSET_SREG_DATA, e.Data)
		}
		w.U64(dynsetTimeout, e.Timeout)
		if e.Count {
			counter := w.Nest(unix.NFTA_DYNSET_EXPR)
			w.Text(unix.NFTA_EXPR_NAME, exprName(Counter{}))
			w.Close(counter)
		}
	default:
		panic(fmt.Sprintf("nft: unknown expression %T", e))
	}
}

func (r Reject) code() byte {
	if r.Family == IPv6 {
		return portUnreach6
	}
	return portUnreach4
}

// exprName is the kernel's name of the kind (NFTA_EXPR_NAME).
func exprName(e Expr) string {
	switch e.(type) {
	case Payload:
		return "payload"
	case Meta, MetaSet:
		return "meta"
	case Ct:
		return "ct"
	case Cmp:
		return "cmp"
	case Bitwise:
		return "bitwise"
	case Immediate, Decide:
		return "immediate"
	case Lookup:
		return "lookup"
	case Numgen:
		return "numgen"
	case Fib:
		return "fib"
	case DNAT:
		return "nat"
	case Masquerade:
		return "masq"
	case Reject:
		return "reject"
	case Counter:
		return "counter"
	case Update:
		return "dynset"
	}
	panic(fmt.Sprintf("nft: unknown expression %T", e))
}

func pick(condition bool, yes, no int) int {
	if condition {
		return yes
	}
	return no
}
