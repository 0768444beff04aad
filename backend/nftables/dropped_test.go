package nftables

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
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

// TestStoppedThoughNotCounted: what is to be refused or dropped is, also where there is no
// room to count it.
func TestStoppedThoughNotCounted(t *testing.T) {
	for _, set := range []string{refused, discarded, barred} {
		size := shapes[set].dynamic
		shapes[set].dynamic = 1
		defer func() { shapes[set].dynamic = size }()
	}
	netnstest.Enter(t)
	for _, args := range []string{"link set lo up", "addr add 192.0.2.10/32 dev lo", "route add local 10.0.0.0/8 dev lo src 192.0.2.10"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	f := families[0]
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	for i, change := range []func(*service.Service){
		func(s *service.Service) { s.Ports[0].Endpoints = nil },
		func(s *service.Service) {
			s.InternalPolicy = service.Local
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
		},
		func(s *service.Service) {
			s.LoadBalancerIPs, s.SourceRanges = s.ClusterIPs, []netip.Prefix{netip.MustParsePrefix(f.Clients)}
			s.ClusterIPs = []netip.Addr{at(f.External, 1)}
		},
	} {
		for n := range 3 {
			s := f.Web(10*i+n+1, 2)
			s.Ports[0].Protocol = service.UDP
			change(s)
			program(t, b, sync, nodeOf(f), s)
		}
	}
	apply(t, sync)
	for i := range 3 {
		for n := range 3 {
			to := netip.AddrPortFrom(at(f.Cluster, 10*i+n+1), 80)
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPERM) {
				t.Errorf("kind %d, packet %d: sent, %v", i, n, err)
			}
		}
	}
}
