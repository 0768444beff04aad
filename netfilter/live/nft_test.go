package live_test

import (
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/live"
	"portolan/trace"
)

// TestReadNFT: nft's tables are read beside those of both iptables variants;
// the ones that iptables-nft keeps are read once, with what its save program
// says.
func TestReadNFT(t *testing.T) {
	namespace(t)
	for _, p := range []string{"nft", "iptables-nft", "iptables-legacy", "ip"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s here", p)
		}
	}
	sh(t, `
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 192.0.2.1/24 dev v0
ip link set v0 up; ip link set v1 up
ip route add default via 192.0.2.254
echo 1 > /proc/sys/net/ipv4/ip_forward
iptables-nft -A FORWARD -m recent --name x --set -m comment --comment "of iptables" -j ACCEPT
iptables-legacy -t nat -A POSTROUTING -j RETURN
nft -f - <<'E'
table ip t {
	map endpoints {
		typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport
		elements = { 203.0.113.1 . tcp . 80 . 0 : 198.51.100.1 . 8080, 203.0.113.1 . tcp . 80 . 1 : 198.51.100.2 . 8080 }
	}
	chain pre {
		type nat hook prerouting priority dstnat; policy accept;
		dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpoints
	}
}
E
`)
	h, err := live.Read(t.Context(), live.Options{NoFlows: true})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, x := range h.Tables {
		names = append(names, x.Variant.String()+" "+x.Name)
	}
	if want := []string{"legacy nat", "nft filter", "nftables ip t"}; !slices.Equal(names, want) {
		t.Errorf("tables %q, want %q; %q", names, want, h.Warnings)
	}
	if c := h.Table(netfilter.IPv4, netfilter.NFT, netfilter.Filter).Chain("FORWARD"); c.Rules[0].Comment() != "of iptables" || c.Order == 0 {
		t.Errorf("%+v", c)
	}
	a := trace.New(h, trace.Options{}).Trace(trace.Flow{Src: netip.MustParseAddr("192.0.2.77"), Dst: netip.MustParseAddr("203.0.113.1"), DstPort: 80, Proto: netfilter.TCP})
	if len(a.Outcomes) != 2 || a.Outcomes[0].Share.RatString() != "1/2" || a.Outcomes[0].DstPort != 8080 || !a.Certain() {
		t.Errorf("%+v", a.Outcomes)
	}
}
