package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Messages of ctnetlink.
const (
	ctNew    = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2
)

// writer appends netlink messages to a buffer.
type writer struct{ buf []byte }

// message opens a message about one family; close closes it, too.
func (w *writer) message(typ, flags uint16, seq uint32, ipv6 bool) int {
	at := len(w.buf)
	family := byte(unix.AF_INET)
	if ipv6 {
		family = unix.AF_INET6
	}
	w.buf = append(w.buf, make([]byte, unix.NLMSG_HDRLEN)...)
	binary.NativeEndian.PutUint16(w.buf[at+4:], typ)
	binary.NativeEndian.PutUint16(w.buf[at+6:], flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(w.buf[at+8:], seq)
	w.buf = append(w.buf, family, unix.NFNETLINK_V0, 0, 0)
	return at
}

func (w *writer) end(message int) {
	binary.NativeEndian.PutUint32(w.buf[message:], uint32(len(w.buf)-message))
}

func (w *writer) attr(typ uint16, data ...byte) {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(attrHeaderLen+len(data)))
	w.buf = binary.NativeEndian.AppendUint16(w.buf, typ)
	w.buf = append(w.buf, data...)
	for len(w.buf)&3 != 0 {
		w.buf = append(w.buf, 0)
	}
}

func (w *writer) u16(typ, v uint16)        { w.attr(typ, byte(v>>8), byte(v)) }
func (w *writer) u32(typ uint16, v uint32) { w.attr(typ, binary.BigEndian.AppendUint32(nil, v)...) }
func (w *writer) flags(typ uint16, set uint32) {
	w.attr(typ, binary.NativeEndian.AppendUint32(nil, set)...)
}

// nest opens an attribute that holds others; the returned position closes it.
func (w *writer) nest(typ uint16) int {
	at := len(w.buf)
	w.attr(typ | unix.NLA_F_NESTED)
	return at
}

func (w *writer) close(at int) {
	binary.NativeEndian.PutUint16(w.buf[at:], uint16(len(w.buf)-at))
}

// tuple writes the fields of a tuple that are there; without a protocol there are
// no ports.
func (w *writer) tuple(typ uint16, t tuple) {
	outer := w.nest(typ)
	src, dst := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if t.src.Is6() || t.dst.Is6() {
		src, dst = ctaIPv6Src, ctaIPv6Dst
	}
	ip := w.nest(ctaTupleIP)
	w.addr(src, t.src)
	w.addr(dst, t.dst)
	w.close(ip)
	if t.proto != 0 {
		proto := w.nest(ctaTupleProto)
		w.attr(ctaProtoNum, t.proto)
		w.u16(ctaProtoSrcPort, t.srcPort)
		w.u16(ctaProtoDstPort, t.dstPort)
		w.close(proto)
	}
	w.close(outer)
}

func (w *writer) addr(typ uint16, addr netip.Addr) {
	if addr.IsValid() {
		w.attr(typ, addr.AsSlice()...)
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
		filter := w.nest(ctaFilter)
		w.flags(ctaFilterOrigFlags, origFlags)
		w.flags(ctaFilterReplyFlags, replyFlags)
		w.close(filter)
	}
	if f.Unreplied {
		w.u32(ctaStatus, 0)
		w.u32(ctaStatusMask, uint32(SeenReply))
	}
	w.end(message)
}

// remove asks to delete one entry, and no other that has taken its place.
func (w *writer) remove(seq uint32, flags uint16, f Flow) {
	message := w.message(ctDelete, flags, seq, f.Orig.Dst.Addr().Is6())
	w.tuple(ctaTupleOrig, tuple{
		src: f.Orig.Src.Addr(), dst: f.Orig.Dst.Addr(), proto: f.Proto,
		srcPort: f.Orig.Src.Port(), dstPort: f.Orig.Dst.Port(),
	})
	if f.Zone != 0 {
		w.u16(ctaZone, f.Zone)
	}
	w.u32(ctaID, f.ID)
	w.end(message)
}
