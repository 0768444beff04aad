package hostfile

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"portolan/netfilter"
)

// What Format writes, Parse reads as it was.
func TestFormat(t *testing.T) {
	const text = `
interfaces: [{name: eth0, addresses: [172.22.7.89/20, "fd00:22::89/64"], mac: "02:00:00:00:00:01"}, {name: cni0, kind: bridge}, {name: veth1, master: cni0}]
routes: [{to: default, via: 172.22.15.253, dev: eth0, metric: 100}, {to: 10.244.1.0/24, via: 10.244.1.0, dev: flannel.1}, {to: 10.9.0.0/16, type: blackhole}, {to: "fd00::/8", via: "fd00:22::1", dev: eth0, table: 254}]
neighbours: [{address: 172.22.7.90, mac: "02:00:00:00:00:02", dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`
	h, err := Parse("a", text)
	if err != nil {
		t.Fatal(err)
	}
	written, left, err := Format(h)
	if err != nil || len(left) > 0 {
		t.Fatal(err, left)
	}
	back, err := Parse("b", written)
	if err != nil {
		t.Fatalf("%v\n%s", err, written)
	}
	for _, pair := range [][2]any{{h.Interfaces, back.Interfaces}, {h.Routes, back.Routes}, {h.Neighbours, back.Neighbours}, {h.Sysctls, back.Sysctls}} {
		if d := cmp.Diff(pair[0], pair[1], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(netfilter.Route{}, "Text")); d != "" {
			t.Errorf("%s\n%s", d, written)
		}
	}
}
