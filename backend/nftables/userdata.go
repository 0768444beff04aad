package nftables

import "portolan/kernel/nft"

// slotUserdata is what nft needs to print a map of slots and to read back what
// it printed: the expressions of its declaration, "typeof ADDRESS . meta l4proto
// . th dport . numgen random mod 65536 : ADDRESS . th dport". Without it, nft
// 1.0.6 aborts on a key part of type integer when it lists any table of the
// host.
//
// The form is nftables' own (NFTNL_UDATA_SET_*): lists of type, length, value
// with a byte for each of the first two, and integers little endian on every
// machine that we run on.
func (w *words) slotUserdata(s *shape) []byte {
	var parts [][]byte
	if len(s.key) == 4 {
		parts = append(parts, w.daddr())
	}
	parts = append(parts,
		expression(exprMeta, u32(metaKey, metaL4Proto)),
		thDport(),
		expression(exprNumgen, join(u32(0, 1 /* random */), u32(1, 65536), u32(2, 0))))
	return join(
		u32(setKeyByteorder, 0),
		u32(setDataByteorder, 0),
		tlv(setKeyTypeof, concatenation(parts...)),
		tlv(setDataTypeof, concatenation(w.daddr(), thDport())),
		u32(setMerge, 0),
		u32(setDataInterval, 0),
	)
}

// clientUserdata is the same for a map of clients, "typeof @nh,96,96 . meta priority :
// ip6 daddr".
func (w *words) clientUserdata() []byte {
	const bigEndian = 2
	return join(
		u32(setKeyByteorder, 0),
		u32(setDataByteorder, bigEndian),
		tlv(setKeyTypeof, concatenation(
			expression(exprPayload, join(u32(0, 0), u32(1, 0), u32(2, 2 /* network header */), u32(3, 96), u32(4, 96))),
			expression(exprMeta, u32(metaKey, metaPriority)))),
		tlv(setDataTypeof, w.daddr()),
		u32(setDataInterval, 0),
	)
}

// numberUserdata tells nft that numbers are in the byte order of the host; it takes
// them for big endian otherwise.
func numberUserdata(s *shape) []byte {
	const hostEndian = 1
	if s.holdsNumber() {
		return join(u32(setKeyByteorder, 0), u32(setDataByteorder, hostEndian))
	}
	return join(u32(setKeyByteorder, hostEndian), u32(setDataByteorder, 0))
}

// Types of nftables' userdata for sets.
const (
	setKeyByteorder  = 0
	setDataByteorder = 1
	setMerge         = 2
	setKeyTypeof     = 3
	setDataTypeof    = 4
	setDataInterval  = 6
)

// Types within "typeof": an expression is its kind and its parameters.
const (
	exprKind = 0
	exprData = 1

	exprPayload = 7
	exprMeta    = 9
	exprConcat  = 13
	exprNumgen  = 23

	metaKey      = 0
	metaPriority = 2
	metaL4Proto  = 16

	descIPv4      = 12
	descIPv6      = 13
	descTransport = 11
)

func (w *words) daddr() []byte {
	if w.family == nft.IPv6 {
		return payload(descIPv6, 9)
	}
	return payload(descIPv4, 12)
}

func thDport() []byte { return payload(descTransport, 2) }

func payload(desc, field uint32) []byte {
	return expression(exprPayload, join(u32(0, desc), u32(1, field)))
}

func concatenation(parts ...[]byte) []byte {
	var list []byte
	for i, p := range parts {
		list = append(list, tlv(byte(i), p)...)
	}
	return expression(exprConcat, list)
}

func expression(kind uint32, data []byte) []byte {
	return join(u32(exprKind, kind), tlv(exprData, data))
}

func tlv(typ byte, value []byte) []byte {
	if len(value) > 255 {
		panic("nftables: userdata does not fit its length")
	}
	return append([]byte{typ, byte(len(value))}, value...)
}

func u32(typ byte, v uint32) []byte {
	return []byte{typ, 4, byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)}
}

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}
