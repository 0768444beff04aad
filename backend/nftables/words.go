package nftables

import (
	"fmt"

	"portolan/kernel/nft"
)

// words are what differs between the families in the text of rules, and sizes
// that go with it.
type words struct {
	family   nft.Family
	ip       string // "ip" or "ip6"
	service  string // key of a frontend with an address
	nodePort string // key of a NodePort
	mark     string // the masquerade bit, as nft writes it
	bit      uint32
	addrLen  int
	addrType nft.Type
	typeName string // of an address
	loopback string
	// byPort tells that clients with affinity are kept in a map for each port of
	// endpoints. nft 1.0.6 aborts when it reads an update of a map whose key or data
	// is longer than 16 bytes: an IPv6 address leaves no room for a port beside it.
	byPort bool
}

func wordsOf(f nft.Family, bit int) words {
	w := words{family: f, ip: "ip", addrLen: 4, addrType: nft.TypeIPv4, typeName: "ipv4_addr", loopback: "127.0.0.0/8"}
	if f == nft.IPv6 {
		w.ip, w.addrLen, w.addrType, w.typeName, w.loopback = "ip6", 16, nft.TypeIPv6, "ipv6_addr", "::1"
		w.byPort = true
	}
	w.nodePort = "meta l4proto . th dport"
	w.service = w.ip + " daddr . " + w.nodePort
	w.bit = 1 << bit
	w.mark = fmt.Sprintf("0x%08x", w.bit)
	return w
}

// client is the key of what is remembered of a client. In IPv6 it is the last 96 bits
// of the address, so that the number of the scope is beside it whole: who differs in
// the first 32 alone shares a choice, and never one among endpoints of others.
func (w *words) client() string {
	if w.byPort {
		return lastBits + " . meta priority"
	}
	return w.ip + " saddr . meta l4proto . meta priority"
}

// lastBits are those of the source address in an IPv6 header (RFC 8200).
const lastBits = "@nh,96,96"

// key is the key of a frontend: with an address, or that of a NodePort.
func (w *words) key(nodePort bool) string {
	if nodePort {
		return w.nodePort
	}
	return w.service
}
