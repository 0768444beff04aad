package netfilter

import (
	"math/bits"
	"net/netip"
	"slices"
)

// SourceAddr is the address that MASQUERADE gives a packet that leaves by dev
// towards a next hop: for IPv4 the first primary address of dev whose network
// holds the next hop, else its first primary address, else the first of any
// other interface (addresses of scope host and link never). For IPv6 the
// next hop itself if it is an address of the host, else the address of dev that
// shares the longest prefix, a shortened form of RFC 6724.
// ok is false when there is none: the kernel then drops the packet.
func (h *Host) SourceAddr(dev string, towards netip.Addr) (addr netip.Addr, ok bool) {
	if towards.Is6() && h.Has(towards) {
		return towards, true
	}
	if in := h.Interface(dev); in != nil {
		if a, ok := in.sourceAddr(towards); ok {
			return a, true
		}
	}
	for i := range h.Interfaces {
		if a, ok := h.Interfaces[i].sourceAddr(towards); ok {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// Has tells whether an interface of the host has an address.
func (h *Host) Has(a netip.Addr) bool {
	return slices.ContainsFunc(h.Interfaces, func(in Interfaced) bool { return in.Has(a) })
}

// Has tells whether the interface has an address.
func (in *Interfaced) Has(a netip.Addr) bool {
	return slices.ContainsFunc(in.Addresses, func(own InterfaceAddress) bool { return own.Prefix.Addr() == a })
}

// HasFamily tells whether the interface has an address that MASQUERADE may give.
func (in *Interfaced) HasFamily(f Family) bool {
	return slices.ContainsFunc(in.Addresses, func(own InterfaceAddress) bool {
		return FamilyOf(own.Prefix.Addr()) == f && !own.Narrow && !own.Prefix.Addr().IsLoopback()
	})
}

// sourceAddr is the address of an interface that the kernel writes into packets to
// towards: for IPv4 the first whose network holds it, or else the first
// (inet_select_addr); for IPv6 the one that shares most leading bits (rule 8 of RFC
// 6724).
func (in *Interfaced) sourceAddr(towards netip.Addr) (netip.Addr, bool) {
	var best netip.Addr
	bestLen := -1
	for _, a := range in.Addresses {
		addr := a.Prefix.Addr()
		if addr.Is4() != towards.Is4() || addr.IsLoopback() || a.Secondary {
			continue
		}
		if a.Narrow && !(addr.IsLinkLocalUnicast() && towards.IsLinkLocalUnicast() && !addr.Is4()) {
			continue
		}
		if addr.Is4() {
			net := a.Prefix
			if a.Peer.IsValid() {
				net = a.Peer
			}
			if net.Masked().Contains(towards) {
				return addr, true
			}
			if bestLen < 0 {
				best, bestLen = addr, 0
			}
			continue
		}
		if addr.IsLinkLocalUnicast() != towards.IsLinkLocalUnicast() {
			continue
		}
		if n := commonBits(addr, towards); n > bestLen {
			best, bestLen = addr, n
		}
	}
	return best, bestLen >= 0
}

// commonBits is the length of the common prefix of two IPv6 addresses.
func commonBits(a, b netip.Addr) int {
	x, y := a.As16(), b.As16()
	for i := range x {
		if d := x[i] ^ y[i]; d != 0 {
			return i*8 + bits.LeadingZeros8(d)
		}
	}
	return 128
}
