package podnet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const conf004 = `{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan"}}`

func names(t *testing.T) Annotations {
	t.Helper()
	a, err := NewAnnotations(DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func config(t *testing.T, text string) Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func prefixes(s ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range s {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// The node 172.22.7.89 of document 004, with its peer 172.22.7.90.
func node004(t *testing.T, conf string) (Config, Self, Node, Node) {
	t.Helper()
	c := config(t, conf)
	self := Self{Name: "master", Device: "eth0", MTU: 1500, V4: Half{Addr: netip.MustParseAddr("172.22.7.89"), Public: netip.MustParseAddr("172.22.7.89"), MAC: MAC{2, 0, 0, 0, 0, 1}, OnLink: prefixes("172.22.0.0/20")}}
	own := Node{Name: "master", PodCIDRs: prefixes("10.244.0.0/24")}
	peer := Node{Name: "worker", PodCIDRs: prefixes("10.244.1.0/24")}
	peer.Annotations = names(t).Announce(c, Self{V4: Half{Addr: netip.MustParseAddr("172.22.7.90"), Public: netip.MustParseAddr("172.22.7.90"), MAC: MAC{2, 0, 0, 0, 0, 2}}}, peer)
	return c, self, own, peer
}

func bodies(t Topology) []string {
	var out []string
	for _, o := range Base(t) {
		out = append(out, o.Body)
	}
	for _, p := range t.Peers {
		for _, o := range Render(t, p) {
			out = append(out, o.Body)
		}
	}
	return out
}

// The route by way of the peer's .0 address through flannel.1
// with 50 bytes less, or by way of the node itself.
func TestRenderDocument004(t *testing.T) {
	for conf, want := range map[string][]string{
		conf004: {
			"flannel.1 address 02:00:00:00:00:01 mtu 1450 type vxlan id 1 dev eth0 local 172.22.7.89 dstport 8472",
			"10.244.0.0/32 dev flannel.1",
			"10.244.1.0 dev flannel.1 lladdr 02:00:00:00:00:02",
			"02:00:00:00:00:02 dev flannel.1 dst 172.22.7.90",
			"10.244.1.0/24 via 10.244.1.0 dev flannel.1 onlink",
		},
		`{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}`: {"10.244.1.0/24 via 172.22.7.90 dev eth0"},
		`{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "DirectRouting": true, "VNI": 9, "Port": 4789, "MTU": 1400}}`: {
			"flannel.9 address 02:00:00:00:00:01 mtu 1350 type vxlan id 9 dev eth0 local 172.22.7.89 dstport 4789",
			"10.244.0.0/32 dev flannel.9",
			"10.244.1.0/24 via 172.22.7.90 dev eth0",
		},
	} {
		c, self, own, peer := node004(t, conf)
		top, problems, err := Given{c, names(t), self, own, []Node{own, peer}}.Resolve(IPv4)
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		if d := cmp.Diff(want, bodies(top)); d != "" {
			t.Errorf("%s:\n%s", conf, d)
		}
	}
}

// The six rules of FLANNEL-POSTRTG in order.
func TestRulesDocument004(t *testing.T) {
	c, self, own, peer := node004(t, conf004)
	top, _, err := Given{c, names(t), self, own, []Node{peer}}.Resolve(IPv4)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range IPTables(MasqueradeRules(top), ForwardRules(top), true) {
		got = append(got, o.Key.Container+" "+o.Body)
	}
	want := []string{
		`nat/POSTROUTING -m comment --comment "flanneld masq" -j FLANNEL-POSTRTG`,
		`nat/FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -m comment --comment "flanneld masq" -j RETURN`,
		`nat/FLANNEL-POSTRTG -s 10.244.0.0/24 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j RETURN`,
		`nat/FLANNEL-POSTRTG -s 10.244.0.0/16 -d 10.244.0.0/24 -m comment --comment "flanneld masq" -j RETURN`,
		`nat/FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/24 -m comment --comment "flanneld masq" -j RETURN`,
		`nat/FLANNEL-POSTRTG -s 10.244.0.0/16 ! -d 224.0.0.0/4 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully`,
		`nat/FLANNEL-POSTRTG ! -s 10.244.0.0/16 -d 10.244.0.0/16 -m comment --comment "flanneld masq" -j MASQUERADE --random-fully`,
		`filter/FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD`,
		`filter/FLANNEL-FWD -s 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`,
		`filter/FLANNEL-FWD -d 10.244.0.0/16 -m comment --comment "flanneld forward" -j ACCEPT`,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// The annotations are flannel's, byte for byte.
func TestAnnounce(t *testing.T) {
	both := Self{
		V4: Half{Addr: netip.MustParseAddr("172.22.7.89"), Public: netip.MustParseAddr("172.22.7.89"), MAC: MAC{0x32, 1, 2, 3, 4, 5}},
		V6: Half{Addr: netip.MustParseAddr("fd00:22::89"), Public: netip.MustParseAddr("fd00:22::89"), MAC: MAC{0x36, 1, 2, 3, 4, 5}},
	}
	p := DefaultPrefix + "/"
	for conf, want := range map[string]map[string]string{
		conf004: {
			p + "kube-subnet-manager": "true", p + "backend-type": "vxlan", p + "public-ip": "172.22.7.89",
			p + "backend-data": `{"VNI":1,"VtepMAC":"32:01:02:03:04:05"}`,
		},
		`{"Network":"10.244.0.0/16","IPv6Network":"fd00:244::/48","EnableIPv6":true,"Backend":{"Type":"host-gw"}}`: {
			p + "kube-subnet-manager": "true", p + "backend-type": "host-gw", p + "public-ip": "172.22.7.89", p + "public-ipv6": "fd00:22::89",
			p + "backend-data": "null", p + "backend-v6-data": "null",
		},
		`{"enableIPv4":false,"ipv6network":"fd00:244::/48","EnableIPv6":true,"backend":{"type":"VXLAN"}}`: {
			p + "kube-subnet-manager": "true", p + "backend-type": "vxlan", p + "public-ipv6": "fd00:22::89",
			p + "backend-v6-data": `{"VNI":1,"VtepMAC":"36:01:02:03:04:05"}`,
		},
	} {
		if d := cmp.Diff(want, names(t).Announce(config(t, conf), both, Node{})); d != "" {
			t.Errorf("%s:\n%s", conf, d)
		}
	}
	forced := Node{Annotations: map[string]string{p + "public-ip-overwrite": "198.51.100.7"}}
	if got := names(t).Announce(config(t, conf004), both, forced)[p+"public-ip"]; got != "198.51.100.7" {
		t.Errorf("public-ip-overwrite: %s", got)
	}
}

// A node that cannot take part is named with what to do; the others do.
func TestProblems(t *testing.T) {
	c, self, own, good := node004(t, conf004)
	a := names(t)
	variant := func(name, cidr, public string, change func(map[string]string)) Node {
		n := Node{Name: name}
		if cidr != "" {
			n.PodCIDRs = prefixes(cidr)
		}
		n.Annotations = a.Announce(c, Self{V4: Half{Addr: netip.MustParseAddr(public), Public: netip.MustParseAddr(public), MAC: MAC{2, 9, 9, 9, 9, name[0]}}}, n)
		if change != nil {
			change(n.Annotations)
		}
		return n
	}
	nodes := []Node{
		good,
		variant("a-no-cidr", "", "172.22.7.101", nil),
		variant("b-overlap", "10.244.1.128/25", "172.22.7.102", nil),
		variant("c-mine", "10.244.0.0/25", "172.22.7.103", nil),
		variant("d-outside", "10.9.0.0/24", "172.22.7.104", nil),
		variant("e-inside", "10.244.5.0/24", "10.244.5.1", nil),
		variant("f-twice", "10.244.6.0/24", "172.22.7.89", nil),
		variant("g-backend", "10.244.7.0/24", "172.22.7.107", func(m map[string]string) { m[a.backendType()] = "wireguard" }),
		variant("h-data", "10.244.8.0/24", "172.22.7.108", func(m map[string]string) { m[a.backendData(IPv4)] = `{"VNI":1,"VtepMAC":"x"}` }),
		variant("i-vni", "10.244.9.0/24", "172.22.7.109", func(m map[string]string) {
			m[a.backendData(IPv4)] = `{"VNI":2,"VtepMAC":"02:00:00:00:00:03"}`
		}),
		variant("j-address", "10.244.10.0/24", "172.22.7.110", func(m map[string]string) { m[a.publicIP(IPv4)] = "$(reboot)" }),
		variant("l-loopback", "10.244.12.0/24", "127.0.0.1", nil),
		variant("m-copy", "10.244.13.0/24", "172.22.7.113", func(m map[string]string) { m[a.backendData(IPv4)] = good.Annotations[a.backendData(IPv4)] }),
		variant("n-copy-of-me", "10.244.14.0/24", "172.22.7.114", func(m map[string]string) {
			m[a.backendData(IPv4)] = `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`
		}),
		{Name: "k-other", PodCIDRs: prefixes("10.244.11.0/24")},
	}
	for i := range nodes {
		nodes[i].Created = nodes[i].Created.AddDate(2026, 0, i)
	}
	top, problems, err := Given{c, a, self, own, nodes}.Resolve(IPv4)
	if err != nil || len(top.Peers) != 1 || top.Peers[0].Name != "worker" {
		t.Fatalf("%v, peers %v", err, top.Peers)
	}
	want := map[string]string{
		"a-no-cidr": "--allocate-node-cidrs", "b-overlap": "overlaps 10.244.1.0/24 of node worker", "c-mine": "overlaps 10.244.0.0/24 of node master", "d-outside": "not within 10.244.0.0/16",
		"e-inside": "lies within the pod network", "f-twice": "also that of node master", "g-backend": "wireguard", "h-data": "VtepMAC", "i-vni": "VNI 2", "j-address": "not an IPv4 address",
		"l-loopback": `"127.0.0.1" is not an address that one node has`, "m-copy": "also that of node worker", "n-copy-of-me": "also that of node master",
	}
	for _, p := range problems {
		if w := want[p.Node]; w == "" || !strings.Contains(p.String(), w) {
			t.Errorf("%s; want %q", p, w)
		}
		delete(want, p.Node)
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
}

// A host-gw peer that is not on the link is named with the route
// that the network would need.
func TestHostGWOffLink(t *testing.T) {
	c, self, own, peer := node004(t, `{"Network": "10.244.0.0/16", "Backend": {"Type": "host-gw"}}`)
	self.V4.OnLink = prefixes("172.22.7.88/30")
	peer.Annotations[names(t).publicIP(IPv4)] = "172.22.7.200"
	_, problems, err := Given{c, names(t), self, own, []Node{peer}}.Resolve(IPv4)
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].String(), "10.244.1.0/24 via 172.22.7.200") {
		t.Errorf("%v %v", err, problems)
	}
}

func TestSubnetEnv(t *testing.T) {
	c, self, own, _ := node004(t, `{"Network":"10.244.0.0/16","IPv6Network":"fd00:244::/48","EnableIPv6":true,"Backend":{"Type":"vxlan"}}`)
	own.PodCIDRs = append(own.PodCIDRs, netip.MustParsePrefix("fd00:244:0:1::/64"))
	self.V6 = Half{Addr: netip.MustParseAddr("fd00:22::89"), Public: netip.MustParseAddr("fd00:22::89"), MAC: MAC{2}}
	var both []Topology
	for _, f := range c.Families() {
		top, _, err := Given{c, names(t), self, own, nil}.Resolve(f)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, top)
	}
	want := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.0.1/24\nFLANNEL_IPV6_NETWORK=fd00:244::/48\nFLANNEL_IPV6_SUBNET=fd00:244:0:1::1/64\nFLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\n"
	if got := SubnetEnv(both, true); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	text, err := CNIConfig(both, true)
	if err != nil || !strings.Contains(string(text), `"hairpinMode": true`) || !strings.Contains(string(text), "fd00:244:0:1::/64") {
		t.Errorf("%v %s", err, text)
	}
}

func TestConfigWarnings(t *testing.T) {
	for text, want := range map[string]string{
		`{"Network": "10.244.0.0/16", "subnetlen": 24, "Backend": {"type": "vxlan", "VNI": 1}}`: "",
		`{"Network": "10.244.0.0/16", "Netwrok": "10.0.0.0/8"}`:                                 `"Netwrok" is no key`,
		`{"Network": "10.244.0.0/16", "network": "10.0.0.0/8"}`:                                 `"network" is there more than once`,
		`{"Backend": {"Type": "vxlan", "DirectRoutes": true}}`:                                  `"Backend.DirectRoutes" is no key`,
		`{"Backend": {"Port": 1, "Port": 2}}`:                                                   `"Backend.Port" is there more than once`,
		`{"Backend": 7}`:                                                                        "", `[]`: "", `{`: "", ``: "",
	} {
		got := ConfigWarnings([]byte(text))
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(conf004))
	f.Add([]byte(`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"host-gw","VNI":3}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		ConfigWarnings(text)
		c, err := ParseConfig(text)
		if err == nil && len(c.Families()) == 0 {
			t.Error("accepted without a family")
		}
	})
}

func FuzzAnnotations(f *testing.F) {
	f.Add(`{"VNI":1,"VtepMAC":"02:00:00:00:00:02"}`, "172.22.7.90", "vxlan")
	f.Fuzz(func(t *testing.T, data, public, kind string) {
		c, self, own, peer := node004(t, conf004)
		a := names(t)
		peer.Annotations[a.backendData(IPv4)], peer.Annotations[a.publicIP(IPv4)], peer.Annotations[a.backendType()] = data, public, kind
		top, problems, err := Given{c, a, self, own, []Node{peer}}.Resolve(IPv4)
		if err != nil || len(top.Peers)+len(problems) != 1 {
			t.Fatalf("%v, %d peers, %v", err, len(top.Peers), problems)
		}
		for _, p := range top.Peers {
			for _, o := range Render(top, p) {
				if _, err := Parse(o); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// A range that holds the node itself, or everything, would make routes of the host
// routes to pods, and those are removed when no node asks for them.
func TestNetworkOfTheHost(t *testing.T) {
	for _, text := range []string{`{"Network": "0.0.0.0/0"}`, `{"Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "::/0"}`} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), "is every address") {
			t.Errorf("%s: %v", text, err)
		}
	}
	c, self, own, peer := node004(t, `{"Network": "172.16.0.0/12"}`)
	own.PodCIDRs = prefixes("172.16.0.0/24")
	if _, _, err := (Given{c, names(t), self, own, []Node{peer}}).Resolve(IPv4); err == nil || !strings.Contains(err.Error(), "address 172.22.7.89 of node master lies within the pod network 172.16.0.0/12") {
		t.Errorf("%v", err)
	}
}
