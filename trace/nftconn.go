package trace

import (
	"fmt"

	"portolan/netfilter"
)

// The bits that nft's conntrack fields have.
const (
	nftInvalid, nftEstablished, nftRelated, nftNew, nftUntracked = 1, 2, 4, 8, 64
	nftSeenReply, nftAssured, nftConfirmed, nftSNAT, nftDNAT     = 2, 4, 8, 16, 32
)

// connField is the value of a field of the packet's connection; without one
// only the state has a value.
func (r *run) connField(s netfilter.Selected) datum {
	if s.Selector == netfilter.CTStateField {
		states := r.states()
		var bits uint64
		for _, b := range []struct {
			state netfilter.CTState
			bit   uint64
		}{{netfilter.StateInvalid, nftInvalid}, {netfilter.StateEstablished, nftEstablished}, {netfilter.StateRelated, nftRelated}, {netfilter.StateNew, nftNew}, {netfilter.StateUntracked, nftUntracked}} {
			if states&b.state != 0 {
				bits |= b.bit
			}
		}
		return number(bits, 4)
	}
	if !r.tracked() {
		return datum{}
	}
	t := r.ct.orig
	if s.Reply {
		t = r.ct.answer
	}
	switch s.Selector {
	case netfilter.CTStatusField:
		return number(r.statusBits(), 4)
	case netfilter.CTDirection:
		if r.ct.reply {
			return number(1, 1)
		}
		return number(0, 1)
	case netfilter.CTMark:
		if r.ct.markWhy != "" {
			return puzzle(r.ct.markWhy)
		}
		return number(uint64(r.ct.mark), 4)
	case netfilter.CTL3Proto:
		return number(map[netfilter.Family]uint64{netfilter.IPv4: 2, netfilter.IPv6: 10}[r.family()], 1)
	case netfilter.CTProtocol:
		return number(uint64(r.pkt.proto), 1)
	case netfilter.CTSaddr:
		return address(t.Src, "an address of the conntrack entry is not known")
	case netfilter.CTDaddr:
		return address(t.Dst, "an address of the conntrack entry is not known")
	case netfilter.CTSourcePort:
		return connPort(t.SrcPort)
	case netfilter.CTDestinationPort:
		return connPort(t.DstPort)
	default:
		panic(fmt.Sprintf("trace: no value of selector %d", s.Selector))
	}
}

func connPort(n uint16) datum {
	if n == 0 {
		return puzzle("a port of the conntrack entry is not known")
	}
	return number(uint64(n), 2)
}

// statusBits are those of ct status, as far as the entry tells them (enum
// ip_conntrack_status).
func (r *run) statusBits() uint64 {
	var bits uint64
	if e := r.ct.entry; e != nil {
		bits |= nftConfirmed
		if !e.Unreplied {
			bits |= nftSeenReply
		}
		if e.Assured {
			bits |= nftAssured
		}
	}
	if r.ct.confirmed {
		bits |= nftConfirmed
	}
	if r.ct.dnat {
		bits |= nftDNAT
	}
	if r.ct.snat {
		bits |= nftSNAT
	}
	return bits
}
