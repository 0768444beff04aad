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
}

func wordsOf(f nft.Family, bit int) words {
	w := words{family: f, ip: "ip", addrLen: 4, addrType: nft.TypeIPv4, typeName: "ipv4_addr", loopback: "127.0.0.0/8"}
	if f == nft.IPv6 {
		w.ip, w.addrLen, w.addrType, w.typeName, w.loopback = "ip6", 16, nft.TypeIPv6, "ipv6_addr", "::1"
	}
	w.nodePort = "meta l4proto . th dport"
	w.service = w.ip + " daddr . " + w.nodePort
	w.bit = 1 << bit
	w.mark = fmt.Sprintf("0x%08x", w.bit)
	return w
}

// key is the key of a frontend: with an address, or that of a NodePort.
func (w *words) key(nodePort bool) string {
	if nodePort {
		return w.nodePort
	}
	return w.service
}
