package iptsave

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/netfilter"
)

const dumps = "../../testdata/dumps/"

func readDump(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dumps, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func table(t testing.TB, d Dump, name string) *netfilter.Table {
	t.Helper()
	for _, x := range d.Tables {
		if x.Name == name {
			return x
		}
	}
	t.Fatalf("no table %s", name)
	return nil
}

func noUnknowns(t *testing.T, d Dump, except ...string) {
	t.Helper()
	for _, tab := range d.Tables {
		for _, c := range tab.Chains() {
			for i := range c.Rules {
				for _, u := range c.Rules[i].Unknowns() {
					if len(except) == 0 || u.Module != except[0] {
						t.Errorf("%s/%s: not understood: %+v", tab.Name, c.Name, u)
					}
				}
			}
		}
	}
}

// All dumps in saved form are understood to the last option.
func TestDumpsAreUnderstood(t *testing.T) {
	for file, rules := range map[string]int{
		"002-kind-v1.23.5-iptables.save.txt":                        71,
		"004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt": 56,
		"004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt":       56,
		"004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt":     21,
		"004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.S.txt":           21,
		"001-rules-filter-and-nat.txt":                              19,
		"003-iptables-mode-rules.nat.txt":                           11,
		"003-ipvs-mode-rules.nat.txt":                               5,
	} {
		d, err := Parse(file, readDump(t, file), Options{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, tab := range d.Tables {
			n += tab.RuleCount()
		}
		if n != rules {
			t.Errorf("%s: %d rules, want %d", file, n, rules)
		}
		if !strings.HasPrefix(file, "001") && !strings.HasPrefix(file, "003") {
			noUnknowns(t, d)
		}
	}
}

// The -S form and the restore form of one node give the same rules.
func TestSavedFormsAgree(t *testing.T) {
	a, err := Parse("S", readDump(t, "004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("restore", readDump(t, "004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	ta, tb := table(t, a, "nat"), table(t, b, "nat")
	if len(ta.Chains()) != len(tb.Chains()) {
		t.Fatalf("%d chains and %d", len(ta.Chains()), len(tb.Chains()))
	}
	for _, c := range ta.Chains() {
		other := tb.Chain(c.Name)
		if other == nil || len(other.Rules) != len(c.Rules) {
			t.Fatalf("chain %s differs", c.Name)
		}
		for i := range c.Rules {
			if strings.Join(strings.Fields(c.Rules[i].Text), " ") != strings.Join(strings.Fields(other.Rules[i].Text), " ") {
				t.Errorf("%s rule %d: %s | %s", c.Name, i+1, c.Rules[i].Text, other.Rules[i].Text)
			}
		}
	}
}

func TestErrorsNameFileAndLine(t *testing.T) {
	for text, want := range map[string]string{
		"*nat\n*banana\n": `iptsave: f:2: there is no table "banana"`,
		"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -s\n":     "iptsave: f:3: chain PREROUTING: -s lacks a value",
		"*nat\n:PREROUTING MAYBE [0:0]\n":                        `iptsave: f:2: chain PREROUTING: policy "MAYBE" is neither ACCEPT, DROP nor -`,
		"*nat\n[1:2 -A PREROUTING\n":                             "iptsave: f:2: counters without a closing bracket",
		"hello world\n":                                          `iptsave: f:1: "hello" begins no line of iptables rules`,
		"*nat\n-A OUTPUT -m mark --mark 0x1ffffffff -j ACCEPT\n": `iptsave: f:2: chain OUTPUT: "0x1ffffffff" is out of range`,
		"*nat\n-A OUTPUT -j DNAT --to-destination 1.2.3:80\n":    `iptsave: f:2: chain OUTPUT: --to-destination: "1.2.3:80" is no address and port`,
		"iptables -t fruit -A INPUT -j DROP":                     `iptsave: f:1: there is no table "fruit"`,
		"iptables -R INPUT 3 -j DROP":                            "iptsave: f:1: -R INPUT 3: the chain has 0 rules",
		"iptables -D INPUT -j DROP":                              "iptsave: f:1: -D INPUT: there is no such chain",
	} {
		if _, err := Parse("f", text, Options{}); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// What one module's author writes must come out as the meaning of the manual.
func TestMatches(t *testing.T) {
	for text, want := range map[string]netfilter.Match{
		"-p tcp --dport 80:":                                netfilter.Port{Side: netfilter.DestinationSide, Range: netfilter.PortRange{First: 80, Last: 65535}},
		"-p tcp -m tcp ! --sport :1023":                     netfilter.Port{Range: netfilter.PortRange{Last: 1023}, Not: true},
		"-p tcp -m tcp --syn":                               netfilter.TCPFlags{Mask: 0x17, Comp: 0x02},
		"-m mark ! --mark 0x4000/0x4000":                    netfilter.Mark{Value: 0x4000, Mask: 0x4000, Not: true},
		"-m mark --mark 5":                                  netfilter.Mark{Value: 5, Mask: 0xffffffff},
		"-m state --state RELATED,ESTABLISHED":              netfilter.ConntrackState{States: netfilter.StateRelated | netfilter.StateEstablished},
		"-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT": netfilter.ConntrackState{States: netfilter.StateRelated | netfilter.StateEstablished | netfilter.StateDNAT, Not: true},
		"-m addrtype ! --dst-type LOCAL --limit-iface-in":   netfilter.AddrType{Dst: netfilter.KindLocal, DstNot: true, LimitIn: true},
		"-m statistic --mode random --probability 0.5":      netfilter.StatisticRandom{Odds: 1 << 30},
		"-m statistic --mode nth --every 3 --packet 1":      netfilter.StatisticNth{Every: 3, Packet: 1},
		"-m recent --rcheck --seconds 10800 --reap --name X --mask 255.255.255.255 --rsource": nil,
		"-m physdev ! --physdev-is-bridged":                                                   nil,
		"-m limit --limit 5/min --limit-burst 7":                                              netfilter.Metered{Module: "limit", Text: "--limit 5/min --limit-burst 7", WithinBudget: true},
		"-m connlimit --connlimit-above 10 --connlimit-mask 32":                               netfilter.Metered{Module: "connlimit", Text: "--connlimit-above 10 --connlimit-mask 32"},
		"-p icmp -m icmp --icmp-type 3/4":                                                     netfilter.ICMPType{Type: 3, CodeFirst: 4, CodeLast: 4},
		"-p ipv6-icmp -m icmp6 --icmpv6-type echo-request":                                    netfilter.ICMPType{V6: true, Type: 128, CodeLast: 255},
		"-m ttl --ttl-gt 5":                                                                   netfilter.Header{Field: netfilter.FieldTTL, Range: netfilter.NumberRange{First: 6, Last: 255}, Text: "--ttl-gt 5"},
		"-m mystery --level 3 ! --deep":                                                       netfilter.Unknown{Module: "mystery", Text: "-m mystery --level 3 ! --deep"},
		"-m policy --dir in --pol ipsec":                                                      netfilter.IPsecPolicy{},
		"! -i br0":                                                                            netfilter.Interface{Name: "br0", In: true, Not: true},
		"! -d 0.0.0.165/0.0.0.255":                                                            netfilter.MaskedAddress{Side: netfilter.DestinationSide, Value: netip.MustParseAddr("0.0.0.165"), Mask: netip.MustParseAddr("0.0.0.255"), Not: true},
		"-s fd00::a5/::f0":                                                                    netfilter.MaskedAddress{Value: netip.MustParseAddr("::a0"), Mask: netip.MustParseAddr("::f0")},
		"-s ! 10.0.0.0/255.0.0.0":                                                             netfilter.Address{Prefix: mustPrefix("10.0.0.0/8"), Not: true},
	} {
		d, err := Parse("f", "*filter\n-A FORWARD "+text+" -j ACCEPT\nCOMMIT\n", Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		ms := table(t, d, "filter").Chain("FORWARD").Rules[0].Matches
		if len(ms) == 0 || (want != nil && ms[len(ms)-1] != want) {
			t.Errorf("%s: got %#v, want %#v", text, ms, want)
		}
	}
}

// TestTargets: nil stands for any Unknown.
func TestTargets(t *testing.T) {
	for text, want := range map[string]netfilter.Target{
		"-j MARK --set-mark 0x1/0xf":             netfilter.SetMark{Value: 1, Mask: 0xf},
		"-j MARK --or-mark 0x4000":               netfilter.SetMark{Value: 0x4000, Mask: 0x4000},
		"-j MARK --xor-mark 0x4000":              netfilter.SetMark{Value: 0x4000},
		"-j MARK --and-mark 0xff":                netfilter.SetMark{Mask: 0xffffff00},
		"-j REJECT":                              netfilter.Reject{With: "icmp-port-unreachable"},
		"-g ELSEWHERE":                           netfilter.Jump{Chain: "ELSEWHERE", Goto: true},
		"-j CONNMARK --restore-mark --mask 0xff": netfilter.SetConnMark{Op: netfilter.ConnMarkRestore, CTMask: 0xff, NFMask: 0xff},
		"-j CT --notrack":                        netfilter.CT{NoTrack: true, Text: "--notrack"},
		"-j TCPMSS --clamp-mss-to-pmtu":          netfilter.Note{Name: "TCPMSS", Text: "--clamp-mss-to-pmtu"},
		"-j FROBNICATE --hard":                   nil,
		"-p tcp -j DNAT --to-destination :8080":  netfilter.Translate{Ports: netfilter.PortRange{First: 8080, Last: 8080}},
		"-p tcp -j REDIRECT --to-ports 15001":    netfilter.Translate{Kind: netfilter.Redirect, Ports: netfilter.PortRange{First: 15001, Last: 15001}},
	} {
		d, err := Parse("f", "*filter\n:ELSEWHERE - [0:0]\n-A FORWARD "+text+"\nCOMMIT\n", Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := table(t, d, "filter").Chain("FORWARD").Rules[0].Target
		if want == nil {
			if _, ok := got.(netfilter.Unknown); !ok {
				t.Errorf("%s: got %#v, want Unknown", text, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%s: got %#v, want %#v", text, got, want)
		}
	}
}

func TestFamilyVariantWarning(t *testing.T) {
	d, err := Parse("f", `# Generated by ip6tables-nft-save v1.8.9 (nf_tables) on Mon Jan  1 00:00:00 2024
# Warning: iptables-legacy tables present, use iptables-legacy-save to see them
*filter
:INPUT DROP [3:4]
[5:6] -A INPUT -s fd00::/8 -j ACCEPT
-6 -A INPUT -p ipv6-icmp -j ACCEPT
-4 -A INPUT -s 10.0.0.0/8 -j ACCEPT
COMMIT
`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	tab := table(t, d, "filter")
	if tab.Family != netfilter.IPv6 || tab.Variant != netfilter.NFT || len(d.Warnings) != 1 {
		t.Errorf("family %s variant %s warnings %v", tab.Family, tab.Variant, d.Warnings)
	}
	c := tab.Chain("INPUT")
	if c.Policy != netfilter.PolicyDrop || c.Counters.Bytes != 4 || len(c.Rules) != 2 || c.Rules[0].Counters.Packets != 5 || !c.Rules[0].Counted {
		t.Errorf("chain %+v", c)
	}
}

// The family switches at the comment that plan prints between the two.
func TestPlanText(t *testing.T) {
	d, err := Parse("plan", "*nat\n:KUBE-SERVICES - [0:0]\n-A KUBE-SERVICES -j RETURN\nCOMMIT\n# ip6tables\n*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Tables) != 2 || d.Tables[0].Family != netfilter.IPv4 || d.Tables[1].Family != netfilter.IPv6 {
		t.Errorf("tables %+v", d.Tables)
	}
}

func TestListingWithCounters(t *testing.T) {
	d, err := ParseListing("002", readDump(t, "002-kind-v1.23.5-iptables.listing-with-counters.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	nat, filter := table(t, d, "nat"), table(t, d, "filter")
	in := filter.Chain("INPUT")
	if in == nil || len(in.Rules) != 3 || in.Rules[0].Counters.Packets != 1954000 || in.Counters.Bytes != 27000000 {
		t.Fatalf("filter INPUT %+v", in)
	}
	if got := in.Rules[1].Text; got != `-A INPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES` {
		t.Errorf("INPUT rule 2: %s", got)
	}
	post := nat.Chain("POSTROUTING")
	if post == nil || post.Rules[0].Counters.Packets != 23934 {
		t.Fatalf("nat POSTROUTING %+v", post)
	}
	if got := nat.Chain("KUBE-POSTROUTING").Rules[1].Target; got != (netfilter.SetMark{Value: 0x4000}) {
		t.Errorf("MARK xor: %#v", got)
	}
	if len(nat.Chain("OUTPUT").Rules) != 2 || len(filter.Chain("OUTPUT").Rules) != 2 {
		t.Errorf("the two OUTPUT chains were not told apart")
	}
}

// A saved rule and its listing mean the same, for every rule of the dump whose
// listing is at hand.
func TestListingEqualsSave(t *testing.T) {
	save, err := Parse("004", readDump(t, "004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := ParseListing("004", readDump(t, "004-nat-counters.before.txt"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	noUnknowns(t, list, "KUBE-SERVICES")
	a, b := table(t, save, "nat"), table(t, list, "nat")
	for _, c := range b.Chains() {
		for i, r := range c.Rules {
			if got, want := r.Text, a.Chain(c.Name).Rules[i].Text; got != listedForm(want) && got != want {
				t.Errorf("%s %d:\n%s\n%s", c.Name, i+1, got, want)
			}
		}
	}
}

// listedForm is how a rule reads after it went through a listing: marks are
// shown by what they do.
func listedForm(s string) string {
	return strings.NewReplacer("--set-xmark 0x4000/0x4000", "--or-mark 0x4000", "--set-xmark 0x4000/0x0", "--xor-mark 0x4000").Replace(s)
}
