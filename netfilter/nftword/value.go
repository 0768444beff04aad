// Package nftword knows the words of nftables: what values, fields and
// priorities are called, for every form that a ruleset is written in.
package nftword

import (
	"math/big"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Value reads a word as a value of a part: "10.0.0.0/8", "80-90", "tcp",
// "eth*". The result is a range, of which most words are one value only. It is
// false for what is no value of the part's type.
func Value(p netfilter.Part, word string) (first, last string, ok bool) {
	switch p.Type {
	case netfilter.IPv4Type, netfilter.IPv6Type:
		return addresses(p, word)
	case netfilter.InterfaceType:
		if word == "" {
			return "", "", false
		}
		first, last = netfilter.NameBytes(word)
		return first, last, true
	}
	if v, ok := single(p, word); ok {
		return v, v, true
	}
	a, b, isRange := strings.Cut(word, "-")
	for isRange {
		// Names have dashes too: nd-router-solicit-nd-router-advert.
		x, okX := single(p, a)
		y, okY := single(p, b)
		if okX && okY {
			return x, y, x <= y
		}
		var more string
		if more, b, isRange = strings.Cut(b, "-"); isRange {
			a += "-" + more
		}
	}
	if number, bits, prefix := strings.Cut(word, "/"); prefix {
		return integerPrefix(p, number, bits)
	}
	return "", "", false
}

// addresses reads an address, a prefix or a range of a part, as bytes.
func addresses(p netfilter.Part, word string) (first, last string, ok bool) {
	if a, err := netip.ParseAddr(word); err == nil {
		v := netfilter.AddrBytes(a)
		return v, v, len(v) == int(p.Bytes) && a.Zone() == ""
	}
	if strings.Contains(word, "/") {
		n, err := netip.ParsePrefix(word)
		if err != nil {
			return "", "", false
		}
		first = netfilter.AddrBytes(n.Masked().Addr())
		if len(first) != int(p.Bytes) {
			return "", "", false
		}
		return first, fill(first, n.Bits()), true
	}
	a, b, isRange := strings.Cut(word, "-")
	if !isRange {
		return "", "", false
	}
	first, _, ok = addresses(p, a)
	if !ok {
		return "", "", false
	}
	last, _, ok = addresses(p, b)
	return first, last, ok && first <= last
}

// fill sets all bits after the first ones.
func fill(v string, bits int) string {
	b := []byte(v)
	for i := range b {
		switch keep := bits - 8*i; {
		case keep <= 0:
			b[i] = 0xff
		case keep < 8:
			b[i] |= 0xff >> keep
		}
	}
	return string(b)
}

// integerPrefix reads 0x10/28, as nft lists ranges of marks that are powers
// of two long.
func integerPrefix(p netfilter.Part, number, bits string) (first, last string, ok bool) {
	first, ok = single(p, number)
	n, err := strconv.Atoi(bits)
	if !ok || err != nil || n < 0 || n > 8*len(first) {
		return "", "", false
	}
	return first, fill(first, n), true
}

// single reads a word that stands for one value.
func single(p netfilter.Part, word string) (string, bool) {
	if p.Bytes == 0 || word == "" {
		return "", false
	}
	if c := word[0]; c >= '0' && c <= '9' && p.Type != netfilter.ClassIDType && p.Type != netfilter.EtherType {
		return number(p, word)
	}
	if named := names[p.Type]; named != nil {
		if n, ok := named[word]; ok {
			return netfilter.Bytes(n, p.Bytes), true
		}
	}
	switch p.Type {
	case netfilter.ProtocolType:
		if n, ok := netfilter.ProtoByName(word); ok && n != 0 {
			return netfilter.Bytes(uint64(n), 1), true
		}
	case netfilter.ClassIDType:
		return classID(word)
	case netfilter.EtherType:
		return mac(word)
	}
	return "", false
}

// number reads an integer of the size of a part.
func number(p netfilter.Part, word string) (string, bool) {
	if p.Bytes > 8 {
		return longNumber(p, word)
	}
	n, err := strconv.ParseUint(word, 0, 64)
	if err != nil {
		if n, err = strconv.ParseUint(word, 10, 64); err != nil {
			return "", false
		}
	}
	if p.Bytes < 8 && n>>(8*p.Bytes) != 0 {
		return "", false
	}
	return netfilter.Bytes(n, p.Bytes), true
}

// longNumber reads a number that fills more than eight bytes, as raw parts of an
// IPv6 address do.
func longNumber(p netfilter.Part, word string) (string, bool) {
	n, ok := new(big.Int).SetString(word, 0)
	if !ok || n.Sign() < 0 || n.BitLen() > 8*int(p.Bytes) {
		return "", false
	}
	return string(n.FillBytes(make([]byte, p.Bytes))), true
}

// classID reads major:minor, both in hexadecimal.
func classID(word string) (string, bool) {
	major, minor, ok := strings.Cut(word, ":")
	if !ok {
		return number(netfilter.PartOf(netfilter.ClassIDType), word)
	}
	read := func(s string) (uint64, error) {
		if s == "" {
			return 0, nil
		}
		return strconv.ParseUint(s, 16, 16)
	}
	a, err1 := read(major)
	b, err2 := read(minor)
	return netfilter.Bytes(a<<16|b, 4), err1 == nil && err2 == nil
}

// mac reads 02:00:00:00:00:01.
func mac(word string) (string, bool) {
	pieces := strings.Split(word, ":")
	out := make([]byte, 0, 6)
	for _, x := range pieces {
		n, err := strconv.ParseUint(x, 16, 8)
		if err != nil {
			return "", false
		}
		out = append(out, byte(n))
	}
	return string(out), len(out) == 6
}

// IsMAC reports whether a word is a hardware address.
func IsMAC(word string) bool {
	_, ok := mac(word)
	return ok
}

// Append reads a word that is one value, as most elements of sets are, and
// puts the value behind dst. It is false for everything else, which Value
// reads; it allocates nothing.
func Append(dst []byte, p netfilter.Part, word string) ([]byte, bool) {
	switch p.Type {
	case netfilter.IPv4Type, netfilter.IPv6Type:
		if strings.Contains(word, "/") {
			return dst, false
		}
		a, err := netip.ParseAddr(word)
		if err != nil || a.BitLen() != 8*int(p.Bytes) || a.Zone() != "" {
			return dst, false
		}
		if a.Is4() {
			b := a.As4()
			return append(dst, b[:]...), true
		}
		b := a.As16()
		return append(dst, b[:]...), true
	case netfilter.ProtocolType:
		if n, ok := netfilter.ProtoByName(word); ok && n != 0 {
			return append(dst, n), true
		}
	}
	if word == "" || p.Bytes == 0 || p.Bytes > 8 || p.Type == netfilter.ClassIDType {
		return dst, false
	}
	var n uint64
	for i := range len(word) {
		c := word[i]
		if c < '0' || c > '9' || n > 1<<56 || (i == 0 && c == '0' && len(word) > 1) {
			return dst, false
		}
		n = 10*n + uint64(c-'0')
	}
	if p.Bytes < 8 && n>>(8*p.Bytes) != 0 {
		return dst, false
	}
	for i := int(p.Bytes) - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst, true
}
