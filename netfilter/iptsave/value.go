package iptsave

import (
	"net/netip"
	"strconv"
	"strings"

	"portolan/netfilter"
)

func isNumber(w string) bool {
	return w != "" && w[0] >= '0' && w[0] <= '9'
}

// parseBits reads names with commas between them, of bits that have these names. At a
// name that there is not, it is not ok and returns that.
func parseBits[T ~uint8 | ~uint16 | ~uint32](names map[string]T, list string) (bits T, unknown string, ok bool) {
	for name := range strings.SplitSeq(list, ",") {
		bit, ok := names[name]
		if !ok {
			return 0, name, false
		}
		bits |= bit
	}
	return bits, "", true
}

// number reads a number in decimal or hex of at most so many bits.
func (p *ruleReader) number(w string, bits int) uint64 {
	n, err := strconv.ParseUint(w, 0, bits)
	if err != nil {
		p.fail("%q is no number of %d bits", w, bits)
	}
	return n
}

// masked reads VALUE[/MASK].
func (p *ruleReader) masked(w string, all uint64) (value, mask uint64) {
	v, m, ok := strings.Cut(w, "/")
	value, mask = p.number(v, 64), all
	if ok {
		mask = p.number(m, 64)
	}
	if value > all || mask > all {
		p.fail("%q is out of range", w)
	}
	return value, mask
}

// parsePrefix reads an address, ADDRESS/LENGTH, or ADDRESS/MASK with a mask of
// leading ones.
func parsePrefix(w string) (netip.Prefix, bool) {
	a, m, ok := strings.Cut(w, "/")
	addr, err := netip.ParseAddr(a)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	bits := addr.BitLen()
	if ok {
		n, err := strconv.Atoi(m)
		if err != nil {
			mask, err := netip.ParseAddr(m)
			if err != nil || mask.BitLen() != bits {
				return netip.Prefix{}, false
			}
			n = maskBits(mask)
		}
		if n < 0 || n > bits {
			return netip.Prefix{}, false
		}
		bits = n
	}
	return netip.PrefixFrom(addr, bits).Masked(), true
}

// parseMasked reads ADDRESS/MASK with any mask.
func parseMasked(w string) (value, mask netip.Addr, ok bool) {
	a, m, _ := strings.Cut(w, "/")
	addr, err1 := netip.ParseAddr(a)
	mask, err2 := netip.ParseAddr(m)
	if err1 != nil || err2 != nil || addr.BitLen() != mask.BitLen() || addr.Zone()+mask.Zone() != "" {
		return netip.Addr{}, netip.Addr{}, false
	}
	bytes, bits := addr.AsSlice(), mask.AsSlice()
	for i := range bytes {
		bytes[i] &= bits[i]
	}
	value, _ = netip.AddrFromSlice(bytes)
	return value, mask, true
}

// maskBits counts the leading ones of a mask, -1 if ones follow a zero.
func maskBits(mask netip.Addr) int {
	n, ended := 0, false
	for _, b := range mask.AsSlice() {
		for i := 7; i >= 0; i-- {
			switch one := b>>i&1 == 1; {
			case one && ended:
				return -1
			case one:
				n++
			default:
				ended = true
			}
		}
	}
	return n
}

var serviceNames = map[string]uint16{
	"ssh": 22, "telnet": 23, "smtp": 25, "domain": 53, "tftp": 69, "http": 80, "ntp": 123, "snmp": 161, "https": 443,
	"bootps": 67, "bootpc": 68, "syslog": 514, "ftp": 21, "imap2": 143, "pop3": 110, "ldap": 389, "nfs": 2049, "mysql": 3306, "postgresql": 5432,
}

func parsePort(w string) (uint16, bool) {
	n, err := strconv.ParseUint(w, 10, 16)
	if err == nil {
		return uint16(n), true
	}
	p, ok := serviceNames[w]
	return p, ok
}

// parsePorts reads P, P1:P2, :P2 or P1:.
func parsePorts(w, sep string) (netfilter.PortRange, bool) {
	a, b, ranged := strings.Cut(w, sep)
	r := netfilter.PortRange{First: 0, Last: 65535}
	var ok1, ok2 = true, true
	if a != "" {
		r.First, ok1 = parsePort(a)
	}
	switch {
	case !ranged:
		r.Last = r.First
		ok2 = a != ""
	case b != "":
		r.Last, ok2 = parsePort(b)
	}
	return r, ok1 && ok2 && r.First <= r.Last
}

// parseNumbers reads N, N:M, N: or :M.
func parseNumbers(w string) (netfilter.NumberRange, bool) {
	a, b, ranged := strings.Cut(w, ":")
	r := netfilter.NumberRange{First: 0, Last: 1<<64 - 1}
	var err1, err2 error
	if a != "" {
		r.First, err1 = strconv.ParseUint(a, 0, 64)
	}
	switch {
	case !ranged:
		r.Last = r.First
		if a == "" {
			return r, false
		}
	case b != "":
		r.Last, err2 = strconv.ParseUint(b, 0, 64)
	}
	return r, err1 == nil && err2 == nil && r.First <= r.Last
}

// parseAddrRange reads A or A-B.
func parseAddrRange(w string) (netfilter.AddrRange, bool) {
	a, b, ranged := strings.Cut(w, "-")
	first, err := netip.ParseAddr(a)
	if err != nil {
		return netfilter.AddrRange{}, false
	}
	last := first
	if ranged {
		if last, err = netip.ParseAddr(b); err != nil {
			return netfilter.AddrRange{}, false
		}
	}
	return netfilter.AddrRange{First: first, Last: last}, first.BitLen() == last.BitLen() && first.Compare(last) <= 0
}
