package netfilter

import "net/netip"

// Target is what a rule does with a packet it matches. The set is closed.
type Target interface{ target() }

// Accept ends the walk at this table's hook; later tables still run.
type Accept struct{}

// Drop ends everything.
type Drop struct{}

// Return goes back to the calling chain; in a built-in chain it gives the
// policy.
type Return struct{}

// Jump runs another chain. With Goto the caller is not returned to.
type Jump struct {
	Chain string
	Goto  bool
}

// NATKind tells which of the NAT targets a Translate is.
type NATKind uint8

// The targets that rewrite addresses.
const (
	DNAT NATKind = iota
	SNAT
	Masquerade
	Redirect
	NetMap
)

func (k NATKind) String() string {
	switch k {
	case DNAT:
		return "DNAT"
	case SNAT:
		return "SNAT"
	case Masquerade:
		return "MASQUERADE"
	case Redirect:
		return "REDIRECT"
	case NetMap:
		return "NETMAP"
	default:
		panic("netfilter: unknown NAT kind")
	}
}

// Translate is DNAT, SNAT, MASQUERADE, REDIRECT or NETMAP. Addrs is the zero
// value when the address is kept or found by the kernel; Ports is zero when
// the port is kept. Base, when not 0, shifts the port by (dport - Base).
// Prefix is NETMAP's.
type Translate struct {
	Kind        NATKind
	Addrs       AddrRange
	Ports       PortRange
	Base        uint16
	Prefix      netip.Prefix
	Random      bool
	RandomFully bool
	Persistent  bool
}

// SetMark is MARK: mark = (mark &^ Mask) ^ Value. --or-mark b is Value b,
// Mask b; --xor-mark b is Value b, Mask 0; --and-mark b is Value 0, Mask ^b.
type SetMark struct{ Value, Mask uint32 }

// Apply computes the new mark.
func (m SetMark) Apply(mark uint32) uint32 { return mark&^m.Mask ^ m.Value }

// ConnMarkOp is what CONNMARK does.
type ConnMarkOp uint8

// The operations of CONNMARK.
const (
	ConnMarkSet ConnMarkOp = iota
	ConnMarkSave
	ConnMarkRestore
)

// SetConnMark is CONNMARK. Set: ct = (ct &^ CTMask) ^ Value. Save:
// ct = (ct &^ CTMask) ^ (mark & NFMask). Restore: the other way round.
type SetConnMark struct {
	Op             ConnMarkOp
	Value          uint32
	CTMask, NFMask uint32
}

// Reject drops and answers. With is the name after --reject-with; the default
// is icmp-port-unreachable (icmp6-port-unreachable for IPv6).
type Reject struct{ With string }

// Log is LOG, NFLOG, ULOG or TRACE: the walk goes on.
type Log struct{ Kind, Text string }

// CT is the CT target and NOTRACK, in the raw table. NoTrack makes the packet
// UNTRACKED, so that nat does not see it.
type CT struct {
	NoTrack bool
	Text    string
}

// TProxy hands the packet to a local socket, sets the mark, and accepts.
type TProxy struct {
	Addr        netip.Addr
	Port        uint16
	Value, Mask uint32
}

// NFQueue asks a program. With Bypass it accepts when no program listens.
type NFQueue struct {
	Text   string
	Bypass bool
}

// SetChange is the SET target: it adds, deletes or maps set entries.
type SetChange struct {
	Name string
	Text string
}

// Note is a target that changes nothing that a walk depends on: CHECKSUM,
// CLASSIFY, DSCP, TCPMSS, TEE, AUDIT and the like. The walk goes on.
type Note struct{ Name, Text string }

func (Accept) target()      {}
func (Drop) target()        {}
func (Return) target()      {}
func (Jump) target()        {}
func (Translate) target()   {}
func (SetMark) target()     {}
func (SetConnMark) target() {}
func (Reject) target()      {}
func (Log) target()         {}
func (CT) target()          {}
func (TProxy) target()      {}
func (NFQueue) target()     {}
func (SetChange) target()   {}
func (Note) target()        {}
func (Unknown) target()     {}
