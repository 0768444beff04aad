package conntrack

import (
	"net/netip"

	"portolan/kernel/netlink"
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
	equalSrc     = 1 << 0
	equalDst     = 1 << 1
	equalProto   = 1 << 3
	equalSrcPort = 1 << 4
	equalDstPort = 1 << 5
)

// parseFlow reads an entry; ok is false when the message is not one with addresses and
// ports.
func parseFlow(m netlink.Message) (f Flow, ok bool) {
	attrs, ok := m.Attrs()
	if !ok || m.Type != ctNew {
		return Flow{}, false
	}
	var orig, reply tuple
	for typ, value := range netlink.Attributes(attrs) {
		switch typ {
		case ctaTupleOrig:
			orig = parseTuple(value)
		case ctaTupleReply:
			reply = parseTuple(value)
		case ctaStatus:
			f.Status = Status(netlink.U32(value))
		case ctaProtoInfo:
			f.State = stateOf(value)
		case ctaID:
			f.ID = netlink.U32(value)
		case ctaZone:
			f.Zone = netlink.U16(value)
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

// parseTuple reads CTA_TUPLE_ORIG or CTA_TUPLE_REPLY; what is missing stays zero.
func parseTuple(b []byte) (t tuple) {
	for typ, value := range netlink.Attributes(b) {
		switch typ {
		case ctaTupleIP:
			for typ, value := range netlink.Attributes(value) {
				addr, _ := netip.AddrFromSlice(value)
				switch {
				case typ == ctaIPv4Src && addr.Is4(), typ == ctaIPv6Src && addr.Is6():
					t.src = addr
				case typ == ctaIPv4Dst && addr.Is4(), typ == ctaIPv6Dst && addr.Is6():
					t.dst = addr
				}
			}
		case ctaTupleProto:
			for typ, value := range netlink.Attributes(value) {
				switch {
				case typ == ctaProtoNum && len(value) == 1:
					t.proto = value[0]
				case typ == ctaProtoSrcPort:
					t.srcPort = netlink.U16(value)
				case typ == ctaProtoDstPort:
					t.dstPort = netlink.U16(value)
				}
			}
		}
	}
	return t
}

// stateOf reads the state of a TCP or SCTP connection out of CTA_PROTOINFO, 0 for others.
func stateOf(b []byte) uint8 {
	for typ, value := range netlink.Attributes(b) {
		if typ != ctaProtoInfoTCP && typ != ctaProtoInfoSCTP {
			continue
		}
		for typ, value := range netlink.Attributes(value) {
			if typ == ctaInfoState && len(value) == 1 {
				return value[0]
			}
		}
	}
	return 0
}
