// Package ipsetsave reads what `ipset save` and `ipset list` print.
package ipsetsave

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// draft is a set whose members are still being read.
type draft struct {
	name, typ, options string
	family             netfilter.Family
	netmask            int // 0: none
	members            []netfilter.SetMember
}

// Parse reads "create" and "add" lines, or blocks that begin with "Name:". Errors
// name file and line.
func Parse(file, text string) ([]*netfilter.Set, error) {
	var order []*draft
	sets := map[string]*draft{}
	var b block
	for n := 1; text != ""; n++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' || f[0] == "COMMIT" {
			continue
		}
		if f[0] == "ipset" {
			f = f[1:]
		}
		if f = b.asSaved(f); len(f) == 0 {
			continue
		}
		if err := read(f, sets, &order); err != nil {
			return nil, fmt.Errorf("ipsetsave: %s:%d: %w", file, n, err)
		}
	}
	out := make([]*netfilter.Set, len(order))
	for i, d := range order {
		out[i] = netfilter.NewSet(d.name, d.typ, d.family, d.options, d.members)
	}
	return out, nil
}

// read carries out one line, in any of the spellings that ipset takes.
func read(f []string, sets map[string]*draft, order *[]*draft) error {
	if len(f) > 0 && (f[0] == "flush" || f[0] == "destroy") {
		return nil
	}
	if len(f) < 3 {
		return fmt.Errorf("expected create NAME TYPE or add NAME ENTRY, not %q", strings.Join(f, " "))
	}
	switch f[0] {
	case "create", "-N", "n", "new":
		if sets[f[1]] != nil {
			return fmt.Errorf("set %s is created twice", f[1])
		}
		d := &draft{name: f[1], typ: f[2], options: strings.Join(f[3:], " "), family: netfilter.IPv4}
		for i := 3; i+1 < len(f); i++ {
			switch {
			case f[i] == "family" && f[i+1] == "inet6":
				d.family = netfilter.IPv6
			case f[i] == "netmask":
				n, err := strconv.Atoi(f[i+1])
				if err != nil || n < 1 || n > 128 {
					return fmt.Errorf("netmask %q is no length", f[i+1])
				}
				d.netmask = n
			}
		}
		sets[f[1]] = d
		*order = append(*order, d)
	case "add", "-A", "a":
		d := sets[f[1]]
		if d == nil {
			return fmt.Errorf("set %s was not created", f[1])
		}
		m, err := d.member(f[2])
		if err != nil {
			return fmt.Errorf("set %s: %w", f[1], err)
		}
		for _, w := range f[3:] {
			m.NoMatch = m.NoMatch || w == "nomatch"
		}
		d.members = append(d.members, m)
	default:
		return fmt.Errorf("%q is neither create nor add", f[0])
	}
	return nil
}

// member reads an entry: one part for each dimension, separated by commas.
func (d *draft) member(text string) (netfilter.SetMember, error) {
	m := netfilter.SetMember{Text: text}
	_, kinds, _ := strings.Cut(d.typ, ":")
	dims := strings.Split(kinds, ",")
	words := strings.Split(text, ",")
	if len(words) < len(dims) && !(d.typ == "bitmap:ip,mac" && len(words) == 1) {
		return m, fmt.Errorf("entry %q has fewer parts than type %s", text, d.typ)
	}
	for i, w := range words {
		if i >= len(dims) {
			return m, fmt.Errorf("entry %q has more parts than type %s", text, d.typ)
		}
		p, err := d.part(dims[i], w)
		if err != nil {
			return m, fmt.Errorf("entry %q: %w", text, err)
		}
		m.Parts = append(m.Parts, p)
	}
	return m, nil
}

// part reads one dimension of an entry, by its name in the type: "hash:ip,port" has ip and
// port.
func (d *draft) part(dim, w string) (netfilter.SetPart, error) {
	var p netfilter.SetPart
	var err error
	switch dim {
	case "ip", "net":
		p.Addrs, err = addrs(w)
		if d.netmask > 0 && err == nil {
			pre, err2 := p.Addrs.First.Prefix(d.netmask)
			if err2 != nil {
				return p, err2
			}
			p.Addrs = rangeOf(pre)
		}
	case "port":
		proto, port, has := strings.Cut(w, ":")
		if !has {
			proto, port = "", w
			if d.typ != "bitmap:port" {
				proto = "tcp"
			}
		}
		if proto != "" {
			n, ok := netfilter.ProtoByName(proto)
			if !ok {
				return p, fmt.Errorf("protocol %q is not known", proto)
			}
			p.Proto = n
		}
		p.Ports, err = portRange(port, p.Proto)
	case "mark":
		var n uint64
		n, err = strconv.ParseUint(w, 0, 32)
		p.Mark = uint32(n)
	case "mac":
		p.Name = strings.ToLower(w)
	case "iface", "set":
		p.Name = w
	default:
		err = fmt.Errorf("dimension %q is not known", dim)
	}
	return p, err
}

// addrs reads A, A-B or A/LENGTH.
func addrs(w string) (netfilter.AddrRange, error) {
	if a, b, ok := strings.Cut(w, "-"); ok {
		first, err1 := netip.ParseAddr(a)
		last, err2 := netip.ParseAddr(b)
		if err1 != nil || err2 != nil || first.BitLen() != last.BitLen() {
			return netfilter.AddrRange{}, fmt.Errorf("%q is no address range", w)
		}
		return netfilter.AddrRange{First: first, Last: last}, nil
	}
	if strings.Contains(w, "/") {
		p, err := netip.ParsePrefix(w)
		if err != nil {
			return netfilter.AddrRange{}, fmt.Errorf("%q is no prefix", w)
		}
		return rangeOf(p), nil
	}
	a, err := netip.ParseAddr(w)
	if err != nil {
		return netfilter.AddrRange{}, fmt.Errorf("%q is no address", w)
	}
	return netfilter.AddrRange{First: a, Last: a}, nil
}

// rangeOf gives the first and last address of a prefix.
func rangeOf(p netip.Prefix) netfilter.AddrRange {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return netfilter.AddrRange{First: p.Masked().Addr(), Last: last}
}

var icmpTypes = map[string]uint16{"echo-request": 8 << 8, "echo-reply": 0, "ping": 8 << 8, "pong": 0}

// portRange reads a port or a range; of ICMP, type and code are in its place.
func portRange(w string, proto uint8) (netfilter.PortRange, error) {
	if proto == netfilter.ICMP || proto == netfilter.ICMPv6 {
		t, c, _ := strings.Cut(w, "/")
		if n, ok := icmpTypes[w]; ok {
			if proto == netfilter.ICMPv6 {
				n = map[uint16]uint16{8 << 8: 128 << 8, 0: 129 << 8}[n]
			}
			return netfilter.PortRange{First: n, Last: n}, nil
		}
		typ, err1 := strconv.ParseUint(t, 10, 8)
		code, err2 := strconv.ParseUint("0"+c, 10, 8)
		if err1 != nil || err2 != nil {
			return netfilter.PortRange{}, fmt.Errorf("%q is no ICMP type", w)
		}
		n := uint16(typ)<<8 | uint16(code)
		return netfilter.PortRange{First: n, Last: n}, nil
	}
	a, b, ranged := strings.Cut(w, "-")
	first, err := strconv.ParseUint(a, 10, 16)
	last := first
	if ranged && err == nil {
		last, err = strconv.ParseUint(b, 10, 16)
	}
	if err != nil || last < first {
		return netfilter.PortRange{}, fmt.Errorf("%q is no port", w)
	}
	return netfilter.PortRange{First: uint16(first), Last: uint16(last)}, nil
}
