package nft

import (
	"testing"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// FuzzRead: whatever the kernel sends, reading it ends.
func FuzzRead(f *testing.F) {
	b := NewBatch(testTable)
	b.AddTable(0)
	b.AddSet(ports("p"), 0)
	b.AddChain(Chain{Name: "a", Type: "filter", Hook: Input}, 0)
	b.AddRule(Rule{Chain: "a", Exprs: []Expr{
		Payload{TransportHeader, 2, 2, Reg}, Cmp{Reg, true, "\x00\x50"}, Meta{unix.NFT_META_MARK, Reg}, MetaSet{unix.NFT_META_MARK, Reg}, Ct{unix.NFT_CT_STATE, Reg},
		Bitwise{Reg, Reg, "\xff", "\x00"}, Immediate{Reg, "\x00"}, Decide{Verdict{Jump, "b"}}, Lookup{"p", Reg, NoReg, true, false}, Numgen{Reg, 7, 0, true},
		Fib{Reg, true}, DNAT{IPv4, Reg, Reg + 1}, Masquerade{true}, Reject{IPv4}, Counter{}, Update{"p", Reg, Reg, 1, false}, Update{"n", Reg, NoReg, 1, true}}}, 0)
	b.AddElement("p", Element{Key: []byte{0, 1}, KeyEnd: []byte{0, 2}, Data: []byte{1}, Comment: "c"}, 0)
	b.endList()
	f.Add(b.w.Buf)
	for m := range netlink.Messages(b.w.Buf) {
		f.Add([]byte(m.Body[4:]))
		for _, value := range netlink.Attributes(m.Body[4:]) {
			f.Add([]byte(value))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for m := range netlink.Messages(data) {
			about(m, testTable)
			readElement(m.Body)
		}
		readExprs(IPv4, data)
		readElement(data)
		readVerdict(data)
		readComment(data)
		readDesc(&Set{}, data)
	})
}
