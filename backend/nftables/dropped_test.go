package nftables

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// TestDropped reads what the kernel counted; reading makes nothing, and counting is no
// change of what was written.
func TestDropped(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			if list, err := b.Dropped(t.Context()); err != nil || len(list) != 1 || list[0].Packets != 0 {
				t.Errorf("of nothing: %v, %v", list, err)
			}
			if there, err := b.options.Conn.HasTable(b.table); err != nil || there {
				t.Fatalf("a table is there: %t, %v", there, err)
			}
			node, web, sync := nodeOf(f), f.Web(1, 0), dataplane.NewSync(b)
			program(t, b, sync, node, web)
			apply(t, sync)
			want := []service.Dropped{{Reason: service.DropInvalid}}
			for i, reason := range []service.DropReason{service.DropNoEndpoints, service.DropNoLocalEndpoints, service.DropSourceRange} {
				set := []string{refused, discarded, barred}[i]
				out, err := exec.Command("nft", fmt.Sprintf("add element %s %s { %s . udp . 53 counter packets %d bytes 9 timeout 1h }",
					b.table, set, web.ClusterIPs[0], i+7)).CombinedOutput()
				if err != nil {
					t.Fatalf("nft: %v: %s", err, out)
				}
				want = append(want, service.Dropped{Addr: web.ClusterIPs[0], Protocol: service.UDP, Port: 53, Reason: reason, Packets: uint64(i + 7)})
			}
			list, err := b.Dropped(t.Context())
			if err != nil || !slices.Equal(list, append(want[1:], want[0])) {
				t.Errorf("%v, %v; want %v", list, err, want)
			}
			nothingToDo(t, b, node, web)
		})
	}
}
