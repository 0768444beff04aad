package conntrack

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Attributes of ctnetlink (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25 // since Linux 5.8
	ctaStatusMask = 26 // since Linux 6.0

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP  = 1
	ctaProtoInfoSCTP = 3
	ctaInfoState     = 1 // in both

	ctaFilterOrigFlags  = 1
	ctaFilterReplyFlags = 2
)

// Flags of ctaFilter*Flags: which fields of the tuple must be equal.
const (
	equalSrc      = 1 << 0
	equalDst      = 1 << 1
	equalProto    = 1 << 3
	equalSrcPort  = 1 << 4
	equalDstPort  = 1 << 5
	genMsgLen     = 4 // struct nfgenmsg
	typeMask      = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	attrHeaderLen = unix.SizeofNlAttr
)

// attributes yields type and content of each attribute. A cut-off rest is passed
// over.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= attrHeaderLen {
			length := int(binary.NativeEndian.Uint16(b))
			if length < attrHeaderLen || length > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&typeMask, b[attrHeaderLen:length]) {
				return
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// parseFlow reads an entry from what follows the netlink header; ok is false
// when it is not one with addresses and ports.
func parseFlow(b []byte) (f Flow, ok bool) {
	if len(b) < genMsgLen {
		return Flow{}, false
	}
	var orig, reply tuple
	for typ, value := range attributes(b[genMsgLen:]) {
		switch typ {
		case ctaTupleOrig:
			orig = parseTuple(value)
		case ctaTupleReply:
			reply = parseTuple(value)
		case ctaStatus:
			f.Status = Status(u32Of(value))
		case ctaProtoInfo:
			f.State = stateOf(value)
		case ctaID:
			f.ID = u32Of(value)
		case ctaZone:
			f.Zone = u16Of(value)
		}
	}
	f.Proto, f.Orig, f.Reply = orig.proto, orig.tuple(), reply.tuple()
	ok = orig.complete() && reply.complete() && orig.proto == reply.proto && orig.src.Is4() == reply.src.Is4()
	return f, ok
}

// tuple is one as it is read.
type tuple struct {
	src, dst         netip.Addr
	proto            uint8
	srcPort, dstPort uint16
}

func (t tuple) complete() bool {
	return t.src.IsValid() && t.dst.IsValid() && t.src.Is4() == t.dst.Is4() && (t.proto == TCP || t.proto == UDP || t.proto == SCTP)
}

func (t tuple) tuple() Tuple {
	return Tuple{Src: netip.AddrPortFrom(t.src, t.srcPort), Dst: netip.AddrPortFrom(t.dst, t.dstPort)}
}

func parseTuple(b []byte) (t tuple) {
	for typ, value := range attributes(b) {
		switch typ {
		case ctaTupleIP:
			for typ, value := range attributes(value) {
				addr, _ := netip.AddrFromSlice(value)
				switch {
				case typ == ctaIPv4Src && addr.Is4(), typ == ctaIPv6Src && addr.Is6():
					t.src = addr
				case typ == ctaIPv4Dst && addr.Is4(), typ == ctaIPv6Dst && addr.Is6():
					t.dst = addr
				}
			}
		case ctaTupleProto:
			for typ, value := range attributes(value) {
				switch {
				case typ == ctaProtoNum && len(value) == 1:
					t.proto = value[0]
				case typ == ctaProtoSrcPort:
					t.srcPort = u16Of(value)
				case typ == ctaProtoDstPort:
					t.dstPort = u16Of(value)
				}
			}
		}
	}
	return t
}

func stateOf(b []byte) uint8 {
	for typ, value := range attributes(b) {
		if typ != ctaProtoInfoTCP && typ != ctaProtoInfoSCTP {
			continue
		}
		for typ, value := range attributes(value) {
			if typ == ctaInfoState && len(value) == 1 {
				return value[0]
			}
		}
	}
	return 0
}

// u16Of and u32Of read an integer, 0 when it has another size.
func u16Of(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func u32Of(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}
