package nft

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/kernel/netlink"
)

// TestElementsToldTwice: a dump that tells an element twice has left others out, and is
// asked for again.
func TestElementsToldTwice(t *testing.T) {
	elements := func(keys ...byte) func(uint32) []byte {
		return func(seq uint32) []byte {
			b := NewBatch(testTable)
			at := len(b.w.Buf)
			for _, key := range keys {
				b.AddElement("s", Element{Key: []byte{key, 0, 0, 0}}, 0)
			}
			b.endList()
			body := b.w.Buf[at+netlink.HeaderSize:]
			return append(reply(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM, unix.NLM_F_MULTI, seq, body...),
				reply(unix.NLMSG_DONE, unix.NLM_F_MULTI, seq, 0, 0, 0, 0)...)
		}
	}
	c := fakeKernel(t, elements(1, 2, 1), elements(1, 2, 3))
	var got []byte
	err := c.Elements(testTable, "s", func() { got = nil }, func(e Element) { got = append(got, e.Key[0]) })
	if err != nil || !slices.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
}
