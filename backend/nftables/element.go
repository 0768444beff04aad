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

// reader turns text into elements. What it returns is good until reset, so that
// elements on their way into a batch need no memory of their own.
type reader struct {
	b        *Backend
	list     []nft.Element
	room     []byte // of keys and data
	verdicts map[string]*nft.Verdict
}

func (r *reader) reset() { r.list, r.room = r.list[:0], r.room[:0] }

// from is what the room has got since it was that long. When it has to grow, what
// was cut out before stays good.
func (r *reader) from(start int) []byte { return r.room[start:len(r.room):len(r.room)] }

// key reads a concatenation.
func (r *reader) key(parts []part, text string) ([]byte, error) {
	start := len(r.room)
	var err error
	r.room, err = r.b.words.parseKey(r.room, parts, text)
	return r.from(start), err
}

// elementsOf returns the elements of a set that an atom of the object of that name
// stands for. With an error the list may hold keys that are good, of elements that
// were read.
func (r *reader) elementsOf(set string, s *shape, name, data string) ([]nft.Element, error) {
	start := len(r.list)
	var err error
	switch {
	case s.isSlots():
		err = r.slots(s, name, data)
	case s.ranges:
		err = r.ranges(s, name, data)
	default:
		err = r.element(s, name, data)
	}
	if err != nil {
		if s.isSlots() || s.ranges {
			r.list = r.list[:start] // some would do harm, without the others
		}
		err = fmt.Errorf("nftables: element %q of %s: %w", name, set, err)
	}
	return r.list[start:len(r.list):len(r.list)], err
}

// element reads an atom that is one element. With an error about the data, which
// an element that was read may have, the key is good.
func (r *reader) element(s *shape, name, data string) (err error) {
	var e nft.Element
	if s.key[0] == number { // that the name has
		e.Comment = name
		if e.Key, err = r.number(name); err != nil {
			return err
		}
	} else if e.Key, err = r.key(s.key, name); err != nil {
		return err
	}
	switch {
	case (data != "") != (s.holds != nothing):
		err = fmt.Errorf("data %q", data)
	case s.holds == aVerdict:
		e.Verdict, err = r.verdict(data)
	case s.holds == aChain:
		chain, is := strings.CutPrefix(data, "goto ")
		if !is {
			err = fmt.Errorf("verdict %q", data)
		}
		if err == nil {
			e.Data, err = r.number(chain)
		}
	case s.holds == aScope:
		e.Data, err = r.number(data)
	}
	r.list = append(r.list, e)
	return err
}

// number is what the kernel has for a name.
func (r *reader) number(name string) ([]byte, error) {
	id, err := r.b.ids.of(name)
	return []byte(host(id)), err
}

// verdict reads "goto CHAIN" and "drop", of which there are few; the latter others write.
func (r *reader) verdict(text string) (*nft.Verdict, error) {
	if v, known := r.verdicts[text]; known {
		return v, nil
	}
	v := &nft.Verdict{Code: nft.Drop}
	if chain, is := strings.CutPrefix(text, "goto "); is {
		v.Code, v.Chain = nft.Goto, chain
	} else if text != "drop" {
		return nil, fmt.Errorf("verdict %q", text)
	}
	if r.verdicts == nil || len(r.verdicts) >= mostKept {
		r.verdicts = map[string]*nft.Verdict{}
	}
	r.verdicts[text] = v
	return v, nil
}

var endpointParts = []part{address, port}

// slots reads "endpoint, endpoint | endpoint": the first list from slot 0, the
// second from localSlots on.
func (r *reader) slots(s *shape, name, data string) error {
	prefix, err := r.key(s.key[:len(s.key)-1], name)
	if err != nil {
		return err
	}
	first, second, _ := strings.Cut(data, " | ")
	for i, text := range [...]string{first, second} {
		at := uint32(i * localSlots)
		for text != "" {
			var one string
			one, text, _ = strings.Cut(text, ", ")
			if number, after, is := strings.Cut(one, "="); is { // read, and out of order
				n, err := strconv.ParseUint(number, 10, 32)
				if err != nil {
					return fmt.Errorf("slot %q", number)
				}
				at, one = uint32(n), after
			}
			if err := r.slot(prefix, at, one); err != nil {
				return err
			}
			at++
		}
	}
	return nil
}

// slot adds one slot; without an endpoint only its key.
func (r *reader) slot(prefix []byte, at uint32, endpoint string) (err error) {
	start := len(r.room)
	r.room = binary.NativeEndian.AppendUint32(append(r.room, prefix...), at)
	e := nft.Element{Key: r.from(start)}
	if endpoint != "" {
		if e.Data, err = r.key(endpointParts, endpoint); err != nil {
			return err
		}
	}
	r.list = append(r.list, e)
	return nil
}

// slotDifference is difference for two texts of slots, of which it reads only what
// differs. It is false for texts that were read out of order.
func (r *reader) slotDifference(s *shape, name, old, now string) (gone, come []nft.Element, ok bool) {
	if strings.Contains(old, "=") {
		return nil, nil, false
	}
	prefix, err := r.key(s.key[:len(s.key)-1], name)
	if err != nil {
		return nil, nil, false
	}
	var oldLists, newLists [2]string
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
			if err := r.slot(prefix, at, is); err != nil {
				return nil, nil, false
			}
			e := r.list[len(r.list)-1]
			if was != "" {
				gone = append(gone, nft.Element{Key: e.Key})
			}
			if is != "" {
				come = append(come, e)
			}
		}
	}
	return gone, come, true
}

// ranges reads "network, network". A range that was read and is not a network is
// "first-last".
func (r *reader) ranges(s *shape, name, data string) error {
	prefix, err := r.key(s.key[:len(s.key)-1], name)
	if err != nil {
		return err
	}
	for text := range strings.SplitSeq(data, ", ") {
		from, to, ok := parseRange(text)
		if !ok || from.BitLen() != r.b.words.addrLen*8 || to.BitLen() != from.BitLen() {
			return fmt.Errorf("range %q", text)
		}
		r.list = append(r.list, nft.Element{
			Key:    slices.Concat(prefix, from.AsSlice()),
			KeyEnd: slices.Concat(prefix, to.AsSlice()),
		})
	}
	return nil
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
			number, is := protocolNumber(one)
			if !is {
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

// protocolNumber also takes numbers, which stand for what we do not write.
func protocolNumber(name string) (number byte, is bool) {
	switch name {
	case "tcp":
		return 6, true
	case "udp":
		return 17, true
	case "sctp":
		return 132, true
	}
	n, err := strconv.ParseUint(name, 10, 8)
	return byte(n), err == nil
}

// keyText writes the bytes of a concatenation as text.
// Bytes that stand for nothing we write give a text that is nobody's key.
func (w *words) keyText(out []byte, parts []part, b []byte) []byte {
	for i, p := range parts {
		_, length := w.partType(p)
		length = (length + 3) &^ 3
		if len(b) < length {
			return append(out, "(short)"...)
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
		case slot, number:
			out = strconv.AppendUint(out, uint64(binary.NativeEndian.Uint32(b)), 10)
		}
		b = b[length:]
	}
	return out
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
