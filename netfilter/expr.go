package netfilter

// Expr is what an nft rule computes from a packet: a field, a constant, an
// element of a map, a random number. The set is closed.
type Expr interface{ expr() }

// Selector is a field of the packet, of its connection or of its way.
type Selector uint8

// The selectors whose value a walk may know.
const (
	NoSelector Selector = iota
	MetaL4Proto
	MetaNFProto
	MetaProtocol
	MetaMark
	MetaPriority
	MetaIIFName
	MetaOIFName
	MetaIIF // the interface's index, which nft writes as its name
	MetaOIF
	MetaUser
	MetaGroup
	IPSaddr
	IPDaddr
	IPProtocol
	IPTTL
	IPDSCP
	IPECN
	IPVersion
	IPHeaderLength
	IPFragOff
	IP6Saddr
	IP6Daddr
	IP6NextHeader
	IP6HopLimit
	IP6DSCP
	IP6Version
	SourcePort
	DestinationPort
	TCPFlagBits
	ICMPTypeField
	ICMPCodeField
	ICMPv6TypeField
	ICMPv6CodeField
	CTStateField
	CTStatusField
	CTDirection
	CTMark
	CTL3Proto
	CTProtocol
	CTSaddr // of the direction that Selected says
	CTDaddr
	CTSourcePort
	CTDestinationPort
)

// Selected is the value of a selector. Proto and Family are what the packet
// must be for there to be a value, 0 for any; ct values say with Reply which
// direction's they are.
type Selected struct {
	Selector Selector
	Proto    uint8
	Family   Family
	Reply    bool
	Part     Part
}

// Constant is a value, or a range of values of one size, ends included.
type Constant struct {
	First, Last string
	Part        Part
}

// IsRange reports whether it stands for more than one value.
func (c Constant) IsRange() bool { return c.First != c.Last }

// Bitwise combines two values of one size: '&', '|', '^', and '<' or '>' for
// shifts by the number on the right.
type Bitwise struct {
	Op          byte
	Left, Right Expr
}

// Concat is a value of several parts, one after the other.
type Concat struct{ Parts []Expr }

// Mapped is what a map has for a key.
type Mapped struct {
	Key Expr
	Map *NFTSet
}

// NumGen is a number from Offset to Offset+Mod-1: a random one, or the next of
// a counter that all packets share.
type NumGen struct {
	Random      bool
	Mod, Offset uint32
}

// Hash is a number from Offset to Offset+Mod-1 made from a key, or with a nil
// key from addresses and ports so that both directions give the same. A seed
// that is not known is chosen by the kernel at random.
type Hash struct {
	Key         Expr
	Mod, Offset uint32
	Seed        uint32
	Seeded      bool
}

// FIBResult is what a FIBLookup gives.
type FIBResult uint8

// The results. FIBPresent is whether there is a route at all.
const (
	FIBType FIBResult = iota
	FIBInterface
	FIBInterfaceName
	FIBPresent
)

// FIBLookup asks the routing tables for the route to one of the packet's
// addresses. In, Out and Mark say what else of the packet the question has.
type FIBLookup struct {
	Source        bool
	In, Out, Mark bool
	Result        FIBResult
}

// PayloadBase is the header that a raw load counts from.
type PayloadBase uint8

// The headers.
const (
	NetworkHeader PayloadBase = iota
	TransportHeader
)

// Payload is some bits of the packet, counted from the start of a header.
// Offset and Bits are whole bytes.
type Payload struct {
	Base   PayloadBase
	Offset uint32
	Bits   uint32
}

// Opaque is a value that a dump cannot tell, or that is not modelled. Proto
// and Family are as in Selected: without them there is no value.
type Opaque struct {
	Text   string
	Proto  uint8
	Family Family
}

func (Selected) expr()  {}
func (Constant) expr()  {}
func (Bitwise) expr()   {}
func (Concat) expr()    {}
func (Mapped) expr()    {}
func (NumGen) expr()    {}
func (Hash) expr()      {}
func (FIBLookup) expr() {}
func (Payload) expr()   {}
func (Opaque) expr()    {}

// Parts are the types of an expression's value.
func Parts(e Expr) []Part {
	switch e := e.(type) {
	case Selected:
		return []Part{e.Part}
	case Constant:
		return []Part{e.Part}
	case Bitwise:
		return Parts(e.Left)
	case Concat:
		var out []Part
		for _, x := range e.Parts {
			out = append(out, Parts(x)...)
		}
		return out
	case Mapped:
		return e.Map.Data
	case NumGen, Hash:
		return []Part{{IntegerType, 4}}
	case FIBLookup:
		return []Part{PartOf([...]DataType{FIBType: AddrKindType, FIBInterface: InterfaceType, FIBInterfaceName: InterfaceType, FIBPresent: BooleanType}[e.Result])}
	case Payload:
		return []Part{{IntegerType, uint8(min(e.Bits/8, 255))}}
	case Opaque, nil:
		return []Part{{}}
	default:
		panic("netfilter: expression of an unknown kind")
	}
}
