package iproute

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
)

const dumps = "../../testdata/dumps/"

func read(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(dumps + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const addrText = `1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00
    inet 127.0.0.1/8 scope host lo
       valid_lft forever preferred_lft forever
    inet6 ::1/128 scope host
       valid_lft forever preferred_lft forever
2: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default
    link/ether ca:71:b8:6d:cb:3f brd ff:ff:ff:ff:ff:ff link-netnsid 0
    inet 172.22.7.89/20 brd 172.22.15.255 scope global dynamic eth0
       valid_lft 1 sec preferred_lft 1 sec
    inet 172.22.7.99/20 scope global secondary eth0
    inet6 fe80::1/64 scope link
4: veth1@if2: <BROADCAST,UP> mtu 1450 qdisc noqueue master cni0 state UP
    link/ether 6e:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff
5: cni0: <BROADCAST,MULTICAST> mtu 1450 qdisc noqueue state DOWN
    link/ether 6a:1c:57:58:65:34 brd ff:ff:ff:ff:ff:ff promiscuity 0
    bridge forward_delay 1500 hello_time 200
    inet 10.244.0.1/24 brd 10.244.0.255 scope global cni0
6: ppp0: <POINTOPOINT,UP> mtu 1400
    inet 10.1.1.1 peer 10.1.1.2/32 scope global ppp0
`

func TestAddresses(t *testing.T) {
	in, err := Addresses("f", addrText)
	if err != nil {
		t.Fatal(err)
	}
	if len(in) != 5 || in[1].Name != "eth0" || len(in[1].Addresses) != 3 || !in[1].Addresses[1].Secondary || !in[1].Addresses[2].Narrow || in[1].Addresses[0].Broadcast.String() != "172.22.15.255" {
		t.Fatalf("%+v", in)
	}
	if in[2].Master != "cni0" || in[3].Kind != "bridge" || !in[3].Down || in[4].Addresses[0].Peer.String() != "10.1.1.2/32" {
		t.Errorf("%+v", in[2:])
	}
	one, err := Addresses("f", "2: eth0    inet 172.22.7.89/20 brd 172.22.15.255 scope global eth0\\       valid_lft forever\n2: eth0    inet6 fe80::1/64 scope link \\  valid_lft forever\n")
	if err != nil || len(one) != 1 || len(one[0].Addresses) != 2 {
		t.Errorf("ip -o: %+v %v", one, err)
	}
}

func TestRoutes(t *testing.T) {
	r, err := Routes("f", `default via 172.22.15.253 dev eth0 proto dhcp src 172.22.7.89 metric 100
10.244.0.0/24 dev cni0 proto kernel scope link src 10.244.0.1
10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink
blackhole 10.9.0.0/16
local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1
default proto static table vpn
	nexthop via 192.0.2.1 dev eth0 weight 1
	nexthop via 192.0.2.2 dev eth1 weight 3
2001:db8::/64 dev eth0 proto kernel metric 256 pref medium
default via fe80::1 dev eth0
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(r) != 8 || r[0].Metric != 100 || r[0].Via.String() != "172.22.15.253" || !r[2].Onlink || r[3].Type != netfilter.RouteBlackhole || r[4].Table != netfilter.TableLocal {
		t.Fatalf("%+v", r)
	}
	if len(r[5].Hops) != 2 || r[5].Hops[1].Weight != 3 || r[5].Table >= 0 || !r[7].To.Addr().Is6() {
		t.Errorf("%+v", r[5:])
	}
}

func TestRules(t *testing.T) {
	r, err := Rules("f", "0:\tfrom all lookup local\n100:\tfrom all fwmark 0x1/0xf lookup 100\n200:\tnot from 10.0.0.0/8 to 192.0.2.0/24 iif eth0 ipproto tcp dport 80-90 lookup vpn suppress_prefixlength 0\n300:\tfrom all blackhole\n400: from all goto 32766\n32766:\tfrom all lookup main\n")
	if err != nil {
		t.Fatal(err)
	}
	x := r[2]
	if len(r) != 6 || r[1].Mark != 1 || r[1].MarkMask != 0xf || r[1].Table != 100 || !x.Not || x.IIF != "eth0" || x.Proto != netfilter.TCP || x.DstPorts.Last != 90 || x.SuppressPrefix != 0 || x.Table != table("vpn") || r[3].Action != netfilter.RuleBlackhole || r[4].Goto != 32766 || r[5].SuppressPrefix != -1 {
		t.Errorf("%+v", r)
	}
}

// The routes of both flannel backends as route -n shows them.
func TestRouteN(t *testing.T) {
	for file, want := range map[string]string{"004-route-n.flannel-vxlan.txt": "10.244.1.0 flannel.1", "004-route-n.flannel-host-gw.txt": "172.22.7.90 eth0"} {
		r, err := RouteN(file, read(t, file))
		if err != nil {
			t.Fatal(err)
		}
		h := &netfilter.Host{Routes: r, Have: netfilter.Known{Routes: true}}
		fib := netfilter.NewFIB(h)
		got := fib.Lookup(netfilter.Question{Dst: netip.MustParseAddr("10.244.1.2")})
		if s := got.Via.String() + " " + got.Dev; s != want {
			t.Errorf("%s: %s", file, s)
		}
		local := fib.Lookup(netfilter.Question{Dst: netip.MustParseAddr("10.244.0.4")})
		if local.Dev != "cni0" || local.Via.IsValid() {
			t.Errorf("%s: pods: %+v", file, local.Route)
		}
		if len(r) != 8 || r[0].Metric != 100 {
			t.Errorf("%s: %d routes", file, len(r))
		}
	}
}

// The peer node and the gateway have one MAC address.
func TestARP(t *testing.T) {
	n, err := ARP("f", read(t, "004-arp-n.host-gw-aliyun.txt"))
	if err != nil {
		t.Fatal(err)
	}
	mac := map[string]string{}
	for _, x := range n {
		mac[x.Addr.String()] = x.MAC
	}
	if len(n) != 5 || mac["172.22.7.90"] != "ee:ff:ff:ff:ff:ff" || mac["172.22.7.90"] != mac["172.22.15.253"] {
		t.Errorf("%+v", n)
	}
}

func TestNeighbours(t *testing.T) {
	n, err := Neighbours("f", "10.244.1.0 dev flannel.1 lladdr 02:00:00:00:00:02 PERMANENT\n10.0.0.9 dev eth0 FAILED\nfe80::1 dev eth0 lladdr 02:00:00:00:00:03 router STALE\n")
	if err != nil || len(n) != 3 || n[0].MAC != "02:00:00:00:00:02" || n[1].State != "FAILED" || n[2].State != "STALE" {
		t.Errorf("%+v %v", n, err)
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	type parse = func(string, string) error
	for text, p := range map[string]parse{
		"x":               func(f, s string) error { _, err := Addresses(f, s); return err },
		"10.0.0.0/99 dev": func(f, s string) error { _, err := Routes(f, s); return err },
		"nope: from all":  func(f, s string) error { _, err := Rules(f, s); return err },
		"a b c":           func(f, s string) error { _, err := RouteN(f, s); return err },
		"a  b c":          func(f, s string) error { _, err := ARP(f, s); return err },
		"a   b c":         func(f, s string) error { _, err := Neighbours(f, s); return err },
	} {
		if err := p("f", "\n"+text); err == nil || !strings.HasPrefix(err.Error(), "iproute: f:2: ") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzIproute(f *testing.F) {
	f.Add(addrText)
	for _, n := range []string{"004-route-n.flannel-vxlan.txt", "004-route-n.flannel-host-gw.txt", "004-arp-n.host-gw-aliyun.txt"} {
		f.Add(read(f, n))
	}
	f.Add("default via 1.1.1.1 dev a nexthop via 2.2.2.2 weight 3\n0: from all fwmark 1/2 lookup 3\n10.1.1.1 dev x lladdr 02:: STALE")
	f.Fuzz(func(t *testing.T, text string) {
		var errs []error
		_, err := Addresses("f", text)
		errs = append(errs, err)
		_, err = Routes("f", text)
		errs = append(errs, err)
		_, err = Rules("f", text)
		errs = append(errs, err)
		_, err = RouteN("f", text)
		errs = append(errs, err)
		_, err = ARP("f", text)
		errs = append(errs, err)
		_, err = Neighbours("f", text)
		for _, err := range append(errs, err) {
			if err != nil && !strings.HasPrefix(err.Error(), "iproute: f:") {
				t.Fatal(err)
			}
		}
	})
}
