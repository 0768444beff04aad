package nftables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/kernel/nft"
)

// localSlots is where the slots of the second list of a frontend begin: the
// endpoints on this node, where pods and this node use all.
const localSlots = 65536

// elementsOf returns the elements of a set that an atom of the object of that name
// stands for. With an error the list may hold keys that are good, of elements that
// were read.
func (b *Backend) elementsOf(set string, s *shape, name, data string) ([]nft.Element, error) {
	var list []nft.Element
	var err error
	switch {
	case s.isSlots():
		list, err = b.slotElements(s, name, data)
	case s.ranges:
		list, err = b.rangeElements(s, name, data)
	default:
		var e nft.Element
		e, err = b.element(s, name, data)
		list = []nft.Element{e}
	}
	if err != nil {
		err = fmt.Errorf("nftables: element %q of %s: %w", name, set, err)
	}
	return list, err
}

// element reads an atom that is one element. With an error about the data, which
// an element that was read may have, the key is good.
func (b *Backend) element(s *shape, name, data string) (nft.Element, error) {
	if s.key[0] == scope { // the key is a scope and not yet its number
		e := nft.Element{Key: []byte(host(b.ids.of(name))), Comment: name}
		var err error
		e.Verdict, err = parseVerdict(data)
		return e, err
	}
	key, err := b.words.parseKey(nil, s.key, name)
	e := nft.Element{Key: key}
	switch {
	case err != nil:
	case (data != "") != (s.holds != nothing):
		err = fmt.Errorf("data %q", data)
	case s.holds == aVerdict:
		e.Verdict, err = parseVerdict(data)
	case s.holds == aScope:
		e.Data = []byte(host(b.ids.of(data)))
	}
	return e, err
}

func parseVerdict(text string) (*nft.Verdict, error) {
	if chain, ok := strings.CutPrefix(text, "goto "); ok {
		return &nft.Verdict{Code: nft.Goto, Chain: chain}, nil
	}
	if text == "drop" {
		return &nft.Verdict{Code: nft.Drop}, nil
	}
	return nil, fmt.Errorf("verdict %q", text)
}

// slotElements reads "endpoint, endpoint | endpoint": the first list from slot
// 0, the second from localSlots on.
func (b *Backend) slotElements(s *shape, name, data string) ([]nft.Element, error) {
	prefix, err := b.words.parseKey(nil, s.key[:len(s.key)-1], name)
	if err != nil {
		return nil, err
	}
	n := strings.Count(data, ",") + 2
	list := make([]nft.Element, 0, n)
	keyLen, dataLen := len(prefix)+4, b.words.addrLen+4
	room := make([]byte, 0, n*(keyLen+dataLen)) // one allocation for all
	first, second, _ := strings.Cut(data, " | ")
	for i, text := range []string{first, second} {
		at := uint32(i * localSlots)
		for text != "" {
			var one string
			one, text, _ = strings.Cut(text, ", ")
			if number, after, is := strings.Cut(one, "="); is { // read, and out of order
				n, err := strconv.ParseUint(number, 10, 32)
				if err != nil {
					return nil, fmt.Errorf("slot %q", number)
				}
				at, one = uint32(n), after
			}
			from := len(room)
			room = append(room, prefix...)
			room = binary.NativeEndian.AppendUint32(room, at)
			key := room[from:len(room):len(room)]
			from = len(room)
			if room, err = b.words.parseKey(room, []part{address, port}, one); err != nil {
				return nil, err
			}
			list = append(list, nft.Element{Key: key, Data: room[from:len(room):len(room)]})
			at++
		}
	}
	return list, nil
}

// slotDifference is difference for two texts of slots, of which it parses only
// what differs. It is false for texts that were read out of order.
func (b *Backend) slotDifference(s *shape, name, old, now string) (gone, come []nft.Element, ok bool) {
	if strings.Contains(old, "=") {
		return nil, nil, false
	}
	prefix, err := b.words.parseKey(nil, s.key[:len(s.key)-1], name)
	if err != nil {
		return nil, nil, false
	}
	oldLists, newLists := [2]string{}, [2]string{}
	oldLists[0], oldLists[1], _ = strings.Cut(old, " | ")
	newLists[0], newLists[1], _ = strings.Cut(now, " | ")
	for i := range oldLists {
		before, after := oldLists[i], newLists[i]
		for at := uint32(i * localSlots); before != "" || after != ""; at++ {
			var was, is string
			was, before, _ = strings.Cut(before, ", ")
			is, after, _ = strings.Cut(after, ", ")
			if was == is {
				continue
			}
			key := binary.NativeEndian.AppendUint32(slices.Clip(prefix), at)
			if was != "" {
				gone = append(gone, nft.Element{Key: key})
			}
			if is != "" {
				data, err := b.words.parseKey(nil, []part{address, port}, is)
				if err != nil {
					return nil, nil, false
				}
				come = append(come, nft.Element{Key: key, Data: data})
			}
		}
	}
	return gone, come, true
}

// rangeElements reads "network, network". A range that was read and is not a
// network is "first-last".
func (b *Backend) rangeElements(s *shape, name, data string) ([]nft.Element, error) {
	prefix, err := b.words.parseKey(nil, s.key[:len(s.key)-1], name)
	if err != nil {
		return nil, err
	}
	var list []nft.Element
	for text := range strings.SplitSeq(data, ", ") {
		from, to, ok := parseRange(text)
		if !ok || from.BitLen() != b.words.addrLen*8 || to.BitLen() != from.BitLen() {
			return nil, fmt.Errorf("range %q", text)
		}
		list = append(list, nft.Element{
			Key:    append(slices.Clone(prefix), from.AsSlice()...),
			KeyEnd: append(slices.Clone(prefix), to.AsSlice()...),
		})
	}
	return list, nil
}

func parseRange(text string) (from, to netip.Addr, ok bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked().Addr(), last(p), true
	}
	a, b, _ := strings.Cut(text, "-")
	from, err := netip.ParseAddr(a)
	if err != nil {
		return from, to, false
	}
	to, err = netip.ParseAddr(b)
	return from, to, err == nil && from.Zone()+to.Zone() == ""
}

// rangeText is what parseRange reads.
func rangeText(from, to netip.Addr) string {
	for bits := range from.BitLen() + 1 {
		if p := netip.PrefixFrom(from, bits); p.Masked().Addr() == from && last(p) == to {
			return p.String()
		}
	}
	return from.String() + "-" + to.String()
}

// last is the last address of a network.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b) // of the length that it had
	return addr
}

// parseKey appends the bytes of a concatenation: each part fills a multiple of 4.
func (w *words) parseKey(out []byte, parts []part, text string) ([]byte, error) {
	for i, p := range parts {
		one, rest, more := strings.Cut(text, " . ")
		if more != (i < len(parts)-1) {
			return nil, fmt.Errorf("key %q", text)
		}
		text = rest
		switch p {
		case address:
			addr, err := netip.ParseAddr(one)
			if err != nil || addr.BitLen() != w.addrLen*8 || addr.Zone() != "" {
				return nil, fmt.Errorf("address %q", one)
			}
			if addr.Is4() {
				b := addr.As4()
				out = append(out, b[:]...)
			} else {
				b := addr.As16()
				out = append(out, b[:]...)
			}
		case protocol:
			number := protocolNumber(one)
			if number == 0 {
				return nil, fmt.Errorf("protocol %q", one)
			}
			out = append(out, number, 0, 0, 0)
		case port:
			n, err := strconv.ParseUint(one, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("port %q", one)
			}
			out = append(out, byte(n>>8), byte(n), 0, 0)
		default:
			return nil, fmt.Errorf("key %q", text)
		}
	}
	return out, nil
}

// protocols that a Service can name, by number.
var protocols = map[byte]string{6: "tcp", 17: "udp", 132: "sctp"}

// protocolNumber also takes numbers, which stand for what we do not write; 0 is
// none.
func protocolNumber(name string) byte {
	switch name {
	case "tcp":
		return 6
	case "udp":
		return 17
	case "sctp":
		return 132
	}
	n, _ := strconv.ParseUint(name, 10, 8) // 0 when it is not a number
	return byte(n)
}

// keyText writes the bytes of a concatenation, and returns what is left of them.
// Bytes that stand for nothing we write give a text that is nobody's key.
func (w *words) keyText(out []byte, parts []part, b []byte) ([]byte, []byte) {
	for i, p := range parts {
		_, length := w.partType(p)
		length = (length + 3) &^ 3
		if len(b) < length {
			return append(out, "(short)"...), nil
		}
		if i > 0 {
			out = append(out, " . "...)
		}
		switch p {
		case address:
			addr, _ := netip.AddrFromSlice(b[:length]) // 4 or 16 bytes
			out = addr.AppendTo(out)
		case protocol:
			if name := protocols[b[0]]; name != "" {
				out = append(out, name...)
			} else {
				out = strconv.AppendUint(out, uint64(b[0]), 10)
			}
		case port:
			out = strconv.AppendUint(out, uint64(binary.BigEndian.Uint16(b)), 10)
		case slot, scope:
			out = strconv.AppendUint(out, uint64(binary.NativeEndian.Uint32(b)), 10)
		}
		b = b[length:]
	}
	return out, b
}

// difference returns what has to be deleted and added to get from one list of
// elements to another, both of one object.
func difference(old, now []nft.Element) (gone, come []nft.Element) {
	known := make(map[string]nft.Element, len(old))
	for _, e := range old {
		known[string(e.Key)+string(e.KeyEnd)] = e
	}
	for _, e := range now {
		key := string(e.Key) + string(e.KeyEnd)
		before, there := known[key]
		if there && sameData(before, e) {
			delete(known, key)
			continue
		}
		come = append(come, e)
	}
	for _, e := range old { // in order
		if _, left := known[string(e.Key)+string(e.KeyEnd)]; left {
			gone = append(gone, e)
		}
	}
	return gone, come
}

func sameData(a, b nft.Element) bool {
	if (a.Verdict == nil) != (b.Verdict == nil) || (a.Verdict != nil && *a.Verdict != *b.Verdict) {
		return false
	}
	return bytes.Equal(a.Data, b.Data)
}
