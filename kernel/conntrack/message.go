package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// Messages of ctnetlink.
const (
	ctNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// writer appends netlink messages to a buffer.
type writer struct{ netlink.Writer }

// message opens a message about one family.
func (w *writer) message(typ, flags uint16, seq uint32, ipv6 bool) int {
	family := byte(unix.AF_INET)
	if ipv6 {
		family = unix.AF_INET6
	}
	return w.Begin(typ, flags, seq, family, 0)
}

// flags are written in the order of this machine.
func (w *writer) flags(typ uint16, set uint32) {
	w.Bytes(typ, binary.NativeEndian.AppendUint32(nil, set))
}

// tuple writes the fields of a tuple that are there; without a protocol there are
// no ports.
func (w *writer) tuple(typ uint16, t tuple) {
	outer := w.Nest(typ)
	src, dst := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if t.src.Is6() || t.dst.Is6() {
		src, dst = ctaIPv6Src, ctaIPv6Dst
	}
	ip := w.Nest(ctaTupleIP)
	w.addr(src, t.src)
	w.addr(dst, t.dst)
	w.Close(ip)
	if t.proto != 0 {
		proto := w.Nest(ctaTupleProto)
		w.U8(ctaProtoNum, t.proto)
		w.U16(ctaProtoSrcPort, t.srcPort)
		w.U16(ctaProtoDstPort, t.dstPort)
		w.Close(proto)
	}
	w.Close(outer)
}

func (w *writer) addr(typ uint16, addr netip.Addr) {
	if addr.IsValid() {
		w.Bytes(typ, addr.AsSlice())
	}
}

// known is the part of a filter that the kernel is asked for. With IPv6 addresses it
// selects all flows but the wanted ones (seen on 6.18), so they are not said.
func (f Filter) known(blind bool) Filter {
	if blind {
		return Filter{IPv6: f.IPv6}
	}
	if f.IPv6 {
		f.To, f.From = netip.Addr{}, netip.Addr{}
	}
	return f
}

// dump asks for the flows of a filter, or for more: a kernel passes over what it does
// not know.
func (w *writer) dump(seq uint32, f Filter) {
	message := w.message(ctGet, unix.NLM_F_DUMP, seq, f.IPv6)
	orig := tuple{dst: f.To, proto: f.Proto}
	reply := tuple{src: f.From}
	var origFlags, replyFlags uint32
	if f.To.IsValid() {
		origFlags |= equalDst
	}
	if f.From.IsValid() {
		replyFlags |= equalSrc
	}
	if f.Proto != 0 {
		origFlags |= equalProto
		if f.ToPort != 0 {
			orig.dstPort = f.ToPort
			origFlags |= equalDstPort
		}
		if f.FromPort != 0 {
			reply.proto, reply.srcPort = f.Proto, f.FromPort
			replyFlags |= equalProto | equalSrcPort
		}
	}
	if origFlags|replyFlags != 0 {
		w.tuple(ctaTupleOrig, orig)
		w.tuple(ctaTupleReply, reply)
		filter := w.Nest(ctaFilter)
		w.flags(ctaFilterOrigFlags, origFlags)
		w.flags(ctaFilterReplyFlags, replyFlags)
		w.Close(filter)
	}
	if f.Unreplied {
		w.U32(ctaStatus, 0)
		w.U32(ctaStatusMask, uint32(SeenReply))
	}
	w.End(message)
}

// remove asks to delete one entry, and no other that has taken its place.
func (w *writer) remove(seq uint32, flags uint16, f Flow) {
	message := w.message(ctDelete, flags, seq, f.Orig.Dst.Addr().Is6())
	w.tuple(ctaTupleOrig, tuple{
		src: f.Orig.Src.Addr(), dst: f.Orig.Dst.Addr(), proto: f.Proto,
		srcPort: f.Orig.Src.Port(), dstPort: f.Orig.Dst.Port(),
	})
	if f.Zone != 0 {
		w.U16(ctaZone, f.Zone)
	}
	w.U32(ctaID, f.ID)
	w.End(message)
}
