package netfilter

import (
	"net/netip"
)

// Match is one condition of a rule. The set of matches is closed: trace
// switches over all of them in one place. What a parser does not understand
// is Unknown, which is neither true nor false.
//
// Not, where a match has it, is the "!" before the option.
type Match interface{ match() }

// Side tells which end of a packet or tuple a match looks at.
type Side uint8

// The sides. EitherSide is multiport's --ports.
const (
	SourceSide Side = iota
	DestinationSide
	EitherSide
)

// PortRange is a range of ports or other 16-bit numbers, ends included.
type PortRange struct{ First, Last uint16 }

// Contains reports whether a port lies in the range.
func (r PortRange) Contains(p uint16) bool { return r.First <= p && p <= r.Last }

// NumberRange is a range of numbers, ends included.
type NumberRange struct{ First, Last uint64 }

// Contains reports whether a number lies in the range.
func (r NumberRange) Contains(n uint64) bool { return r.First <= n && n <= r.Last }

// AddrRange is a range of addresses of one family, ends included.
type AddrRange struct{ First, Last netip.Addr }

// Contains reports whether an address lies in the range.
func (r AddrRange) Contains(a netip.Addr) bool {
	return r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// Protocol is -p. Number 0 stands for every protocol.
type Protocol struct {
	Number uint8
	Not    bool
}

// Address is -s or -d with a prefix.
type Address struct {
	Side   Side
	Prefix netip.Prefix
	Not    bool
}

// MaskedAddress is -s or -d with a mask that is not that of a prefix: bits of the
// address are compared. Value and Mask are of one family, and Value has no bits
// outside of Mask.
type MaskedAddress struct {
	Side        Side
	Value, Mask netip.Addr
	Not         bool
}

// Contains reports whether an address has the bits.
func (m MaskedAddress) Contains(a netip.Addr) bool {
	if a.BitLen() != m.Value.BitLen() {
		return false
	}
	address, value, mask := a.As16(), m.Value.As16(), m.Mask.As16()
	for i := range address {
		// An IPv4 address in 16 bytes begins with bytes that all have.
		if address[i]&mask[i] != value[i]&mask[i] {
			return false
		}
	}
	return true
}

// Interface is -i (In) or -o. A name that ends in "+" is a prefix.
type Interface struct {
	Name string
	In   bool
	Not  bool
}

// Matches compares with the interface a packet has; no interface is "", and
// equals only the prefix "+".
func (m Interface) Matches(name string) bool {
	if n := len(m.Name); n > 0 && m.Name[n-1] == '+' {
		p := m.Name[:n-1]
		return len(name) >= len(p) && name[:len(p)] == p
	}
	return m.Name == name
}

// Fragment is -f: second and later fragments.
type Fragment struct{ Not bool }

// Comment is always true.
type Comment struct{ Text string }

// Port is --sport or --dport of tcp, udp, sctp, dccp and udplite. False on
// later fragments.
type Port struct {
	Side  Side
	Range PortRange
	Not   bool
}

// The TCP flag bits as they stand in the header.
const (
	FIN uint8 = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
)

// TCPFlags is --tcp-flags: of the flags in Mask exactly those in Comp are set.
// --syn is Mask FIN,SYN,RST,ACK and Comp SYN.
type TCPFlags struct {
	Mask, Comp uint8
	Not        bool
}

// Mark is -m mark: (mark & Mask) == Value.
type Mark struct {
	Value, Mask uint32
	Not         bool
}

// ConnMark is -m connmark: the same on the connection's mark.
type ConnMark struct {
	Value, Mask uint32
	Not         bool
}

// CTState is a set of conntrack states.
type CTState uint16

// The states of -m conntrack --ctstate. SNAT and DNAT compare the entry's
// original and reply tuples, and so hold for both directions.
const (
	StateInvalid CTState = 1 << iota
	StateNew
	StateEstablished
	StateRelated
	StateUntracked
	StateSNAT
	StateDNAT
)

// ConntrackState is --ctstate: true when the packet is in one of the states.
type ConntrackState struct {
	States CTState
	Not    bool
}

// ConntrackTuple compares one end of the entry: --ctorigsrc, --ctreplydst,
// --ctorigdstport and so on. Prefix is invalid when it compares ports.
type ConntrackTuple struct {
	Reply  bool
	Side   Side
	Prefix netip.Prefix
	Ports  PortRange
	Not    bool
}

// ConntrackDirection is --ctdir.
type ConntrackDirection struct{ Reply, Not bool }

// ConntrackProto is --ctproto.
type ConntrackProto struct {
	Number uint8
	Not    bool
}

// CTStatus is a set of conntrack status bits.
type CTStatus uint8

// The bits of --ctstatus. StatusNone is NONE: none of the others.
const (
	StatusNone CTStatus = 1 << iota
	StatusExpected
	StatusSeenReply
	StatusAssured
	StatusConfirmed
)

// ConntrackStatus is --ctstatus: true when one of the bits is set.
type ConntrackStatus struct {
	Status CTStatus
	Not    bool
}

// AddrKind is a set of address types as a lookup in the local routing table
// gives them.
type AddrKind uint16

// The kinds of -m addrtype.
const (
	KindUnspec AddrKind = 1 << iota
	KindUnicast
	KindLocal
	KindBroadcast
	KindAnycast
	KindMulticast
	KindBlackhole
	KindUnreachable
	KindProhibit
	KindThrow
	KindNAT
	KindXResolve
)

// AddrType is -m addrtype. Src and Dst are 0 when not asked for. The limits
// restrict the question to the packet's in or out interface.
type AddrType struct {
	Src, Dst          AddrKind
	SrcNot, DstNot    bool
	LimitIn, LimitOut bool
}

// StatisticRandom is -m statistic --mode random: true with probability
// Odds / 2^31, the form in which the kernel keeps it.
type StatisticRandom struct {
	Odds uint32
	Not  bool
}

// StatisticNth is -m statistic --mode nth: true for one packet in Every, the
// Packet-th counted from 0.
type StatisticNth struct {
	Every, Packet uint32
	Not           bool
}

// SetMatch is -m set --match-set NAME with one side for each dimension.
type SetMatch struct {
	Name          string
	Dims          []Side
	ReturnNomatch bool
	Counters      string // counter options as written, "" without
	Not           bool
}

// RecentOp is what -m recent does.
type RecentOp uint8

// The operations of -m recent.
const (
	RecentSet RecentOp = iota
	RecentCheck
	RecentUpdate
	RecentRemove
)

// Recent is -m recent: a list of addresses with time stamps, by default of at
// most 100 addresses (the module's ip_list_tot).
type Recent struct {
	Name     string
	Op       RecentOp
	Side     Side
	Seconds  uint32
	HitCount uint32
	Reap     bool
	TTL      bool
	Mask     netip.Addr
	Not      bool
}

// ICMPType is --icmp-type and --icmpv6-type. Any accepts every type.
type ICMPType struct {
	V6                  bool
	Any                 bool
	Type                uint8
	CodeFirst, CodeLast uint8
	Not                 bool
}

// MultiPort is -m multiport.
type MultiPort struct {
	Side   Side
	Ranges []PortRange
	Not    bool
}

// PhysDev is -m physdev: the bridge port, known only for frames that
// br_netfilter brought in. The Is fields are nil when not asked for, else the
// value that is wanted.
type PhysDev struct {
	In, Out                *Interface
	IsIn, IsOut, IsBridged *bool
}

func (Protocol) match()           {}
func (Address) match()            {}
func (MaskedAddress) match()      {}
func (Interface) match()          {}
func (Fragment) match()           {}
func (Comment) match()            {}
func (Port) match()               {}
func (TCPFlags) match()           {}
func (Mark) match()               {}
func (ConnMark) match()           {}
func (ConntrackState) match()     {}
func (ConntrackTuple) match()     {}
func (ConntrackDirection) match() {}
func (ConntrackProto) match()     {}
func (ConntrackStatus) match()    {}
func (AddrType) match()           {}
func (StatisticRandom) match()    {}
func (StatisticNth) match()       {}
func (SetMatch) match()           {}
func (Recent) match()             {}
func (ICMPType) match()           {}
func (MultiPort) match()          {}
func (PhysDev) match()            {}
func (Metered) match()            {}
func (IPVS) match()               {}
func (NFAcct) match()             {}
func (Owner) match()              {}
func (RPFilter) match()           {}
func (Socket) match()             {}
func (IPRange) match()            {}
func (IPsecPolicy) match()        {}
func (Header) match()             {}
func (MACSource) match()          {}
func (BPF) match()                {}
func (CGroup) match()             {}
func (U32) match()                {}
func (Unknown) match()            {}
