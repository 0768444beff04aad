package netfilter

import (
	"net/netip"
	"testing"
)

func node() *Host {
	p := netip.MustParsePrefix
	a := netip.MustParseAddr
	return &Host{
		Interfaces: []Interfaced{
			{Name: "eth0", Addresses: []InterfaceAddress{{Prefix: p("172.22.7.89/20")}, {Prefix: p("10.9.0.1/24")}}},
			{Name: "cni0", Kind: "bridge", Addresses: []InterfaceAddress{{Prefix: p("10.244.0.1/24")}}},
			{Name: "eth1", Addresses: []InterfaceAddress{{Prefix: p("fd00:1::1/64")}, {Prefix: p("fd00:2::1/64")}, {Prefix: p("fe80::1/64"), Narrow: true}}},
		},
		Routes: []Route{
			{To: p("0.0.0.0/0"), Via: a("172.22.15.253"), Dev: "eth0", Metric: 100},
			{To: p("0.0.0.0/0"), Dev: "wlan0", Metric: 50, Table: 100},
			{To: p("172.22.0.0/20"), Dev: "eth0"},
			{To: p("10.244.0.0/24"), Dev: "cni0"},
			{To: p("10.244.1.0/24"), Via: a("172.22.7.90"), Dev: "eth0"},
			{To: p("10.244.1.128/25"), Type: RouteBlackhole},
		},
		Have: Known{Interfaces: true, Routes: true},
	}
}

// The route of a destination by longest prefix, routing rules and marks.
func TestLookup(t *testing.T) {
	h := node()
	h.RoutingRules = append(DefaultRules(), RoutingRule{Priority: 100, Mark: 0x1, MarkMask: 0xf, Table: 100, SuppressPrefix: -1},
		RoutingRule{Priority: 90, From: netip.MustParsePrefix("10.66.0.0/16"), Action: RuleProhibit, SuppressPrefix: -1})
	f := NewFIB(h)
	for _, c := range []struct {
		src, dst string
		mark     uint32
		typ      RouteType
		dev      string
	}{
		{"", "8.8.8.8", 0, RouteUnicast, "eth0"},
		{"", "8.8.8.8", 0x31, RouteUnicast, "wlan0"},
		{"10.66.1.1", "8.8.8.8", 0, RouteProhibit, ""},
		{"", "10.244.0.9", 0, RouteUnicast, "cni0"},
		{"", "10.244.1.9", 0, RouteUnicast, "eth0"},
		{"", "10.244.1.200", 0, RouteBlackhole, ""},
		{"", "10.244.0.1", 0, RouteLocal, "cni0"},
		{"", "10.244.0.255", 0, RouteBroadcast, "cni0"},
		{"", "127.8.9.1", 0, RouteLocal, "lo"},
		{"", "2001:db8::1", 0, RouteNone, ""},
	} {
		q := Question{Dst: netip.MustParseAddr(c.dst), Mark: c.mark}
		if c.src != "" {
			q.Src = netip.MustParseAddr(c.src)
		}
		if r := f.Lookup(q); r.Type != c.typ || r.Dev != c.dev {
			t.Errorf("%s mark %#x: got %s dev %q, want %s dev %q", c.dst, c.mark, r.Type, r.Dev, c.typ, c.dev)
		}
	}
}

// The type of an address, as -m addrtype and fib have it.
func TestAddrKind(t *testing.T) {
	f := NewFIB(node())
	for _, c := range []struct {
		addr, dev string
		kind      AddrKind
	}{
		{"172.22.7.89", "", KindLocal}, {"172.22.7.89", "cni0", KindUnicast}, {"172.22.7.90", "", KindUnicast},
		{"127.0.0.53", "", KindLocal}, {"224.0.0.1", "", KindMulticast}, {"255.255.255.255", "", KindBroadcast},
		{"fd00:2::1", "", KindLocal}, {"::1", "", KindLocal},
	} {
		if k, known := f.AddrKind(netip.MustParseAddr(c.addr), c.dev); k != c.kind || !known {
			t.Errorf("%s %s: kind %#x known %t, want %#x", c.addr, c.dev, k, known, c.kind)
		}
	}
	if _, known := NewFIB(&Host{}).AddrKind(netip.MustParseAddr("172.22.7.89"), ""); known {
		t.Error("without addresses nothing is known of 172.22.7.89")
	}
}

// The source that the kernel gives a packet of its own, by interface and next hop.
func TestSourceAddr(t *testing.T) {
	h := node()
	for _, c := range [][3]string{
		{"eth0", "172.22.15.253", "172.22.7.89"}, {"eth0", "10.9.0.7", "10.9.0.1"}, {"eth0", "1.1.1.1", "172.22.7.89"},
		{"cni0", "10.244.0.4", "10.244.0.1"},
		{"eth1", "fd00:2::9", "fd00:2::1"}, {"eth1", "fd00:1::9", "fd00:1::1"},
	} {
		if a, _ := h.SourceAddr(c[0], netip.MustParseAddr(c[1])); a.String() != c[2] {
			t.Errorf("%s towards %s: %s, want %s", c[0], c[1], a, c[2])
		}
	}
	// On lo the first interface with a wide address is asked.
	if a, ok := h.SourceAddr("lo", netip.MustParseAddr("127.0.0.1")); !ok || a.String() != "172.22.7.89" {
		t.Errorf("lo: %s", a)
	}
	if _, ok := (&Host{}).SourceAddr("eth0", netip.MustParseAddr("1.1.1.1")); ok {
		t.Error("a host without addresses has no source address")
	}
}

// The most specific member of a set decides.
func TestSetContains(t *testing.T) {
	r := func(a, b string) AddrRange { return AddrRange{netip.MustParseAddr(a), netip.MustParseAddr(b)} }
	s := NewSet("S", "hash:ip,port", IPv4, "", []SetMember{{Parts: []SetPart{{Addrs: r("10.96.0.1", "10.96.0.1")}, {Ports: PortRange{443, 443}, Proto: TCP}}}})
	key := func(a string, p uint16, proto uint8) SetKey {
		return SetKey{{Addr: netip.MustParseAddr(a)}, {Port: p, Proto: proto}}
	}
	if !s.Contains(key("10.96.0.1", 443, TCP)) || s.Contains(key("10.96.0.1", 443, UDP)) || s.Contains(key("10.96.0.2", 443, TCP)) {
		t.Error("hash:ip,port")
	}
	n := NewSet("N", "hash:net", IPv4, "", []SetMember{
		{Parts: []SetPart{{Addrs: r("10.0.0.0", "10.255.255.255")}}},
		{Parts: []SetPart{{Addrs: r("10.1.0.0", "10.1.255.255")}}, NoMatch: true},
	})
	one := func(a string) SetKey { return SetKey{{Addr: netip.MustParseAddr(a)}} }
	if !n.Contains(one("10.2.0.1")) || n.Contains(one("10.1.0.1")) || n.Contains(one("11.0.0.1")) {
		t.Error("hash:net with nomatch")
	}
}
