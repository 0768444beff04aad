package linux

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
	"portolan/podnet"
)

// Where the addresses are in the network header, in bytes.
var addressAt = map[nft.Family]struct{ src, dst, size uint32 }{
	nft.IPv4: {12, 16, 4},
	nft.IPv6: {8, 24, 16},
}

// exprs is a rule in the form that the kernel runs.
func (k *NFTables) exprs(r podnet.Rule) []nft.Expr {
	var out []nft.Expr
	if r.Mark != 0 {
		mark := string(binary.NativeEndian.AppendUint32(nil, r.Mark))
		out = append(out, nft.Meta{Key: unix.NFT_META_MARK, Dreg: nft.Reg}, nft.Bitwise{Sreg: nft.Reg, Dreg: nft.Reg, Mask: mark, Xor: "\x00\x00\x00\x00"}, nft.Cmp{Sreg: nft.Reg, Data: mark})
	}
	at := addressAt[k.table.Family]
	out = append(out, prefixExprs(at.src, at.size, r.Src, r.NotSrc)...)
	out = append(out, prefixExprs(at.dst, at.size, r.Dst, r.NotDst)...)
	switch r.Verdict {
	case podnet.Return:
		return append(out, nft.Decide{Verdict: nft.Verdict{Code: nft.Return}})
	case podnet.Accept:
		return append(out, nft.Decide{Verdict: nft.Verdict{Code: nft.Accept}})
	case podnet.Masquerade:
		return append(out, nft.Masquerade{FullyRandom: k.fullyRandom})
	default:
		panic("podnet: unknown verdict")
	}
}

// prefixExprs compares whole bytes where the prefix ends with one, as nft does,
// else it masks.
func prefixExprs(offset, size uint32, p netip.Prefix, not bool) []nft.Expr {
	if !p.IsValid() {
		return nil
	}
	bits := p.Bits()
	addr := string(p.Addr().AsSlice())
	if bits%8 == 0 && bits > 0 {
		n := bits / 8
		return []nft.Expr{nft.Payload{Base: nft.NetworkHeader, Offset: offset, Len: uint32(n), Dreg: nft.Reg}, nft.Cmp{Sreg: nft.Reg, Not: not, Data: addr[:n]}}
	}
	return []nft.Expr{
		nft.Payload{Base: nft.NetworkHeader, Offset: offset, Len: size, Dreg: nft.Reg},
		nft.Bitwise{Sreg: nft.Reg, Dreg: nft.Reg, Mask: string(net.CIDRMask(bits, int(size)*8)), Xor: string(make([]byte, size))},
		nft.Cmp{Sreg: nft.Reg, Not: not, Data: addr},
	}
}

// read is the text of a rule as podnet writes it, or what no rule of ours is.
func (k *NFTables) read(r nft.Rule) string {
	rule, ok := k.rule(r.Exprs)
	if !ok || r.Foreign || !slices.Equal(k.exprs(rule), r.Exprs) {
		return "a rule of others"
	}
	return rule.String()
}

// rule guesses the rule behind expressions; who asks compares.
func (k *NFTables) rule(exprs []nft.Expr) (r podnet.Rule, ok bool) {
	at := addressAt[k.table.Family]
	var load nft.Expr
	bits := 0
	for _, e := range exprs {
		switch e := e.(type) {
		case nft.Meta:
			load = e
		case nft.Payload:
			load, bits = e, int(e.Len)*8
		case nft.Bitwise:
			if _, masked := load.(nft.Payload); masked {
				bits, _ = net.IPMask(e.Mask).Size()
			}
		case nft.Cmp:
			switch l := load.(type) {
			case nft.Meta:
				if len(e.Data) != 4 {
					return r, false
				}
				r.Mark = binary.NativeEndian.Uint32([]byte(e.Data))
			case nft.Payload:
				whole := make([]byte, at.size)
				copy(whole, e.Data)
				addr, _ := netip.AddrFromSlice(whole)
				if l.Offset == at.src {
					r.Src, r.NotSrc = netip.PrefixFrom(addr, bits), e.Not
				} else {
					r.Dst, r.NotDst = netip.PrefixFrom(addr, bits), e.Not
				}
			}
		case nft.Decide:
			r.Verdict = podnet.Return
			if e.Verdict.Code == nft.Accept {
				r.Verdict = podnet.Accept
			}
		case nft.Masquerade:
			r.Verdict = podnet.Masquerade
		}
	}
	return r, true
}
