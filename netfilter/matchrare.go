package netfilter

// Metered is a match whose truth depends on rates, amounts or the clock:
// limit, hashlimit, connlimit, connbytes, quota, rateest, time.
// WithinBudget is what it answers while nothing is exceeded.
type Metered struct {
	Module       string
	Text         string
	WithinBudget bool
	Clock        bool // the answer depends on the time of day
}

// IPVS is -m ipvs: whether, and which, IPVS connection a packet belongs to.
type IPVS struct {
	Text string
	Not  bool // --ipvs alone was negated
}

// NFAcct is -m nfacct: always true, counts.
type NFAcct struct{ Name string }

// Owner is -m owner: the socket that sent the packet. Ranges are nil when not
// asked for; Exists is nil or the value wanted.
type Owner struct {
	UIDs, GIDs       *NumberRange
	UIDNot, GIDNot   bool
	Exists           *bool
	SupplementaryGID bool
}

// RPFilter is -m rpfilter: true if the route back leaves by the arrival
// interface.
type RPFilter struct {
	Loose, ValidMark, AcceptLocal, Invert bool
}

// Socket is -m socket.
type Socket struct{ Transparent, NoWildcard, RestoreMark, Not bool }

// IPRange is -m iprange.
type IPRange struct {
	Side  Side
	Range AddrRange
	Not   bool
}

// IPsecPolicy is -m policy (IPsec). None means --pol none.
type IPsecPolicy struct {
	Out, None bool
	Text      string
}

// Field is a header field that -m length, ttl, hl, dscp, tos, tcpmss or ecn
// compares.
type Field uint8

// The header fields.
const (
	FieldLength Field = iota
	FieldTTL
	FieldDSCP
	FieldTOS
	FieldMSS
	FieldECN
)

// Header compares a header field: (field & Mask) within Range. Mask 0 means
// all bits.
type Header struct {
	Field Field
	Range NumberRange
	Mask  uint64
	Text  string
	Not   bool
}

// MACSource is -m mac.
type MACSource struct {
	Address string
	Not     bool
}

// BPF is -m bpf --bytecode. Code holds the instructions; nil for a pinned
// program, which cannot be run away from its kernel.
type BPF struct {
	Code []BPFInstruction
	Text string
}

// BPFInstruction is one instruction of classic BPF.
type BPFInstruction struct {
	Op     uint16
	JT, JF uint8
	K      uint32
}

// CGroup is -m cgroup: the cgroup of the sending socket.
type CGroup struct {
	Text string
	Not  bool
}

// U32 is -m u32: all tests must hold.
type U32 struct {
	Tests []U32Test
	Text  string
	Not   bool
}

// U32Test is one test of -m u32: the value at Steps must lie in one of Ranges.
type U32Test struct {
	Steps  []U32Step
	Ranges []NumberRange
}

// U32Step loads or changes the value: '=' loads the four bytes at Number, '&'
// masks, '<' and '>' shift, '@' moves the base by the value and loads anew.
type U32Step struct {
	Op     byte
	Number uint32
}

// Unknown is a match or a target that no parser understands, or that needs
// what a dump cannot hold. As a match it may be true or false; as a target it
// may do anything.
type Unknown struct {
	Module string
	Text   string
	Why    string // "" when the module itself is unknown
}
