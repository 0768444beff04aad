package ipvs

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestBodies: every target is read as it was written. Addresses of devices of the pod
// network end in "::".
func TestBodies(t *testing.T) {
	bodies := map[service.Family][]string{
		service.IPv4: {
			"10.96.0.1 tcp 80: rr | KUBE-CLUSTER-IP |",
			"10.96.0.1 udp 53: sh persistent 10800 flags 10 | KUBE-CLUSTER-IP KUBE-PORTOLAN-DROP | 10.244.1.2:80 10.244.2.2:80#3 10.244.2.3:80#0#3",
			"203.0.113.1 sctp 9: - | KUBE-LOAD-BALANCER KUBE-LOAD-BALANCER-SOURCE-CIDR=10.0.0.0/8,192.0.2.0/24 |",
		},
		service.IPv6: {
			"fd00:244:1:: tcp 30100: rr | | [fd00:244:1::2]:8080",
			"fd00:: udp 30100: rr | KUBE-6-LOAD-BALANCER-SOURCE-CID=fd00::/32 | [fd00::]:8080",
		},
	}
	for family, list := range bodies {
		b := New(Options{Family: family})
		for _, body := range list {
			target, err := b.parseTarget(body)
			if err != nil {
				t.Errorf("%q: %v", body, err)
				continue
			}
			if again := b.body(target); again != body {
				t.Errorf("%q is read and written as %q", body, again)
			}
		}
	}
}

// TestBodiesOfAll does the same with targets of chance.
func TestBodiesOfAll(t *testing.T) {
	backends := map[bool]*Backend{false: New(Options{Family: service.IPv4}), true: New(Options{Family: service.IPv6})}
	rapid.Check(t, func(t *rapid.T) {
		six := rapid.Bool().Draw(t, "IPv6")
		b := backends[six]
		address := rapid.Custom(func(t *rapid.T) netip.Addr {
			if !six {
				return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address")))
			}
			var a [16]byte
			copy(a[:], rapid.SliceOfN(rapid.ByteRange(0, 2), 0, 16).Draw(t, "address"))
			a[0] = 0x20
			return netip.AddrFrom16(a)
		})
		endpoint := rapid.Custom(func(t *rapid.T) netip.AddrPort {
			return netip.AddrPortFrom(address.Draw(t, "address"), rapid.Uint16().Draw(t, "port"))
		})
		want := &target{server: ipvs.Server{ID: ipvs.ID{Addr: endpoint.Draw(t, "server"),
			Protocol: rapid.SampledFrom([]ipvs.Protocol{ipvs.TCP, ipvs.UDP, ipvs.SCTP}).Draw(t, "protocol")}}}
		if rapid.Bool().Draw(t, "serves") {
			want.server.Scheduler = rapid.SampledFrom([]string{"rr", "wrr", "sh", "mh"}).Draw(t, "scheduler")
			want.server.Persistence = time.Duration(rapid.IntRange(0, 100_000).Draw(t, "persistence")) * time.Second
			want.server.Flags = uint32(rapid.IntRange(0, 64).Draw(t, "flags"))
		}
		for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(memberSets), 0, 4, rapid.ID).Draw(t, "sets") {
			want.join(id)
		}
		for _, addr := range rapid.SliceOfNDistinct(endpoint, 0, 4, rapid.ID).Draw(t, "real servers") {
			want.reals = append(want.reals, ipvs.Real{Addr: addr, Weight: uint32(rapid.IntRange(0, 3).Draw(t, "weight"))})
		}
		got, err := b.parseTarget(b.body(want))
		if err != nil {
			t.Fatal(err)
		}
		if b.body(got) != b.body(want) || got.server != want.server || len(got.reals) != len(want.reals) ||
			slices.ContainsFunc(want.reals, func(r ipvs.Real) bool { return !slices.Contains(got.reals, r) }) {
			t.Fatalf("written %+v, read %+v", want, got)
		}
	})
}
