package kube

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// parseAddr reads an IP address. Like kube-proxy it tolerates leading zeros in
// IPv4 ("172.30.0.041" is 172.30.0.41), which old API servers let through. An
// address with a zone is refused: it cannot be written in a rule.
func parseAddr(s string) (netip.Addr, error) {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, ":") {
		s = withoutLeadingZeros(s)
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", s)
	}
	if addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%q has a zone, which no rule can match", s)
	}
	return addr.Unmap(), nil
}

// hostBits tells whether a CIDR is not the first address of its network.
func hostBits(cidr string) bool {
	ip, _, _ := strings.Cut(strings.TrimSpace(cidr), "/")
	addr, err := parseAddr(ip)
	p, err2 := parsePrefix(cidr)
	return err == nil && err2 == nil && addr != p.Addr()
}

// parsePrefix reads a CIDR as lenient as parseAddr.
func parsePrefix(s string) (netip.Prefix, error) {
	s = strings.TrimSpace(s)
	ip, bits, ok := strings.Cut(s, "/")
	if !ok {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	addr, err := parseAddr(ip)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	p, err := netip.ParsePrefix(addr.String() + "/" + withoutLeadingZeros(bits))
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", s)
	}
	return p.Masked(), nil
}

// withoutLeadingZeros is an address or length as the API server still takes it of old
// objects: 010 is 10.
func withoutLeadingZeros(s string) string {
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); t != "" {
			parts[i] = t
		} else if p != "" {
			parts[i] = "0"
		}
	}
	return strings.Join(parts, ".")
}

// addresses reads a list; what is no address is left out.
func addresses(list []string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		if a, err := parseAddr(s); err == nil && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// prefixes reads a list; what is no CIDR is left out.
func prefixes(list []string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if p, err := parsePrefix(s); err == nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}
