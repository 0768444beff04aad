package nfttext_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/nfttext"
)

// rules reads rules of an inet table, or of an ip table where the words say so.
func rules(t testing.TB, family string, texts ...string) []netfilter.Rule {
	t.Helper()
	d, err := nfttext.Parse("t", "table "+family+` t {
	set s { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.1 } }
	map m { type ipv4_addr . inet_proto . inet_service : verdict; }
	map e { typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport; }
	set d { type ipv4_addr; flags dynamic,timeout; timeout 3h; }
	chain c {
		`+strings.Join(texts, "\n\t\t")+`
	}
}`)
	if err != nil {
		t.Fatalf("%q: %v", texts, err)
	}
	return d.Tables[0].Chain("c").Rules
}

// Different words for the same thing.
func TestForms(t *testing.T) {
	for _, same := range [][]string{
		{"meta mark set meta mark | 0x00004000", "mark set mark or 0x4000", "meta mark set mark or 16384", "meta mark set (meta mark | 0x4000)"},
		{"meta mark & 0x00004000 != 0x00000000 accept", "mark and 0x4000 != 0 accept", "meta mark and 0x4000 ne 0 accept"},
		{"meta mark set meta mark ^ 0x1", "mark set mark xor 1"},
		{"tcp flags syn / fin,syn,rst,ack", "tcp flags & (fin|syn|rst|ack) == syn", "tcp flags & (fin | syn | rst | ack) == syn", "tcp flags and (fin or syn or rst or ack) == syn", "tcp flags & 0x17 == 2"},
		{"ct state { established, related } accept", "ct state {established,related} accept"},
		{"reject with icmp admin-prohibited", "reject with icmp type admin-prohibited", "reject with icmp code admin-prohibited"},
		{"meta l4proto tcp reject with tcp reset", "reject with tcp reset"},
		{"reject", "reject with icmpx port-unreachable", "reject with icmpx type port-unreachable"},
		{"tcp dport { 22, 80-90 } accept", "tcp dport {22,80-90} accept", "tcp dport {\n22,\n80-90,\n} accept", "tcp dport { ssh, http-90 } accept"},
		{"tcp dport 22 accept", "tcp dport { 22 } accept", "tcp dport ssh accept", "tcp dport == 22 accept"},
		{"tcp dport 80 dnat ip to 10.0.0.1:8080", "tcp dport http dnat ip to 10.0.0.1 : 8080"},
		{"tcp dport 80 dnat ip to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 81 }", "tcp dport 80 dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80 , 1 : 10.0.0.2 . 81 }"},
		{"redirect to :8080", "redirect to 8080", "redirect to :http-alt"},
		{"numgen inc mod 2 offset 1 1 accept", "numgen inc mod 2 offset 1 == 1 accept"},
		{"iifname \"eth*\" accept", "iifname eth* accept", "meta iifname \"eth*\" accept"},
		{"ip saddr 10.0.0.0/24 accept", "ip saddr 10.0.0.0-10.0.0.255 accept", "ip saddr 10.0.0.7/24 accept"},
		{"icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept", "icmpv6 type {134, 135} accept"},
		{"ip protocol icmp accept", "ip protocol 1 accept", "ip protocol 0x1 accept"},
		{"meta priority set 1:2", "meta priority set 0x10002"},
		{"masquerade fully-random,persistent", "masquerade fully-random persistent"},
		{"ip dscp ef accept", "ip dscp 0x2e accept"},
		{"limit rate 10/second burst 5 packets accept", "limit rate 10/second accept"},
		{"th dport 53 accept", "th dport domain accept"},
		{"fib saddr . iif oif missing drop", "fib saddr . iif check missing drop"},
		{"queue num 3-5 bypass,fanout", "queue flags bypass,fanout to 3-5"},
		{"ct status dnat accept", "ct status 32 accept"},
		{"meta l4proto { tcp, udp } th dport 53 accept", "meta l4proto {6, 17} th dport 53 accept"},
		{"ct original ip saddr 10.0.0.1 accept", "ct original ip saddr { 10.0.0.1 } accept"},
		{"ip frag-off & 0x1fff != 0 drop", "ip frag-off & 8191 != 0 drop"},
		{"ip saddr vmap { 10.0.0.1 : jump c, * : drop }", "ip saddr vmap { 10.0.0.1:jump c, *:drop }"},
		{"drop # handle 7", "drop"},
		{"counter packets 5 bytes 6 drop", "counter drop"},
		{"log prefix \"a b\" level info drop", "log prefix \"a b\" level info drop # x"},
	} {
		want := forget(rules(t, "inet", same[0])[0])
		for _, text := range same[1:] {
			got := rules(t, "inet", text)
			if len(got) != 1 || forget(got[0]) != want {
				t.Errorf("%q means\n%s\nbut %q\n%s", text, forget(got[0]), same[0], want)
			}
		}
		if strings.Contains(want, "Unknown") {
			t.Errorf("%q: %s", same[0], want)
		}
	}
}

// forget writes a rule's meaning without its words.
func forget(r netfilter.Rule) string {
	var b strings.Builder
	for _, s := range r.Statements {
		v := reflect.New(reflect.TypeOf(s)).Elem()
		v.Set(reflect.ValueOf(s))
		if f := v.FieldByName("Text"); f.IsValid() && v.Type().Name() != "Unknown" {
			f.SetString("")
		}
		fmt.Fprintf(&b, "%s", v.Type().Name())
		for i := range v.NumField() {
			if set, is := v.Field(i).Interface().(*netfilter.NFTSet); is && set.Name == "" {
				fmt.Fprintf(&b, " %v %v %q", set.Key, set.Data, fmt.Sprint(set.Elements))
				continue
			}
			if m, is := v.Field(i).Interface().(netfilter.Mapped); is {
				fmt.Fprintf(&b, " %v %v %q", m.Key, m.Map.Data, fmt.Sprint(m.Map.Elements))
				continue
			}
			fmt.Fprintf(&b, " %q", fmt.Sprint(v.Field(i).Interface()))
		}
		b.WriteString("; ")
	}
	return b.String()
}

// What is not understood is Unknown with its text, and so is the rest of the
// rule, whose meaning may depend on it.
func TestUnknown(t *testing.T) {
	for text, want := range map[string]string{
		"frobnicate hard accept":                                       "frobnicate hard accept",
		"tcp dport 80 frobnicate { 1, 2 } accept":                      "frobnicate { 1, 2 } accept",
		"tcp dport eighty accept":                                      "tcp dport eighty accept",
		"ip saddr fd00::1 accept":                                      "ip saddr fd00::1 accept",
		"ip saddr { 10.0.0.1, fd00::1 } accept":                        "ip saddr { 10.0.0.1, fd00::1 } accept",
		"meta shoesize 45 accept":                                      "meta shoesize 45 accept",
		"numgen odd mod 2 0 accept":                                    "numgen odd mod 2 0 accept",
		"ip saddr vmap { 10.0.0.1 : explode }":                         "ip saddr vmap { 10.0.0.1 : explode }",
		"dnat ip prefix to ip daddr map { 10.0.0.0/24 : 10.1.0.0/24 }": "dnat ip prefix to ip daddr map { 10.0.0.0/24 : 10.1.0.0/24 }",
		"set add ip saddr @s":                                          "set add ip saddr @s",
		"xt target \"MARK\"":                                           "xt target MARK",
		"json \"{'future':1}\"":                                        "json \"{'future':1}\"",
		"jump":                                                         "jump",
		"tcp dport 70000 accept":                                       "tcp dport 70000 accept",
		"ip ttl 300 accept":                                            "ip ttl 300 accept",
		"meta mark set":                                                "meta mark set",
		"ip daddr 10.0.0.9-10.0.0.1 accept":                            "ip daddr 10.0.0.9-10.0.0.1 accept",
		"counter packets many bytes 1":                                 "counter packets many bytes 1",
		"tcp dport 80 dnat to 10.0.0.1":                                "dnat to 10.0.0.1", // inet needs the family
	} {
		r := rules(t, "inet", text)
		if len(r) != 1 {
			t.Errorf("%s: %d rules", text, len(r))
			continue
		}
		u := r[0].Unknowns()
		if len(u) != 1 || u[0].Text != want || u[0] != r[0].Statements[len(r[0].Statements)-1] {
			t.Errorf("%s: %+v", text, r[0].Statements)
		}
	}
}

// Fields that are known but have no value here are opaque, and the rest of the
// rule is read.
func TestOpaque(t *testing.T) {
	for _, text := range []string{
		"ip length 100-200", "ip id 5", "tcp option maxseg size > 500", "tcp option sack-perm exists", "exthdr frag exists", "ip option rr exists", "socket transparent 1", "socket cgroupv2 level 2 \"a/b\"",
		"meta pkttype broadcast", "meta cgroup { 1, 2 }", "meta hour \"08:00\"-\"18:00\"", "meta day { \"Monday\", \"Friday\" }", "meta iifgroup 5", "osf name \"Linux\"", "rt nexthop 10.0.0.1", "rt ip nexthop 10.0.0.1",
		"ipsec in reqid 5", "ct helper \"ftp\"", "ct expiration < 5s", "ether saddr 02:00:00:00:00:01", "vlan id 5", "esp spi 5", "@ih,0,8 5", "@ll,0,48 5", "@th,4,3 1", "ct label 5", "meta secpath exists", "arp operation request",
		"frag more-fragments 1", "icmp id 5", "xt match recent",
	} {
		r := rules(t, "inet", text+" accept")[0]
		var left netfilter.Expr
		switch s := r.Statements[0].(type) {
		case netfilter.Compare:
			left = s.Left
		case netfilter.Member:
			left = s.Key
		}
		if _, is := left.(netfilter.Opaque); !is || len(r.Statements) != 2 || r.Statements[1] != (netfilter.Accept{}) {
			t.Errorf("%s: %+v", text, r.Statements)
		}
	}
}

func TestNumbersOfRules(t *testing.T) {
	d, err := nfttext.Parse("t", "table inet t { # handle 1\n\tcomment \"x\"\n\tchain c { # handle 1\n\t\ttype filter hook forward priority filter + 10; policy drop;\n\t\tcomment \"chain\"\n\t\tcounter packets 7 bytes 8 accept comment \"why\" # handle 2\n\n\t\tip saddr { 10.0.0.1,\n\t\t\t10.0.0.2 } drop; tcp dport 5 drop\n\t}\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	c := d.Tables[0].Chain("c")
	if c.Hook != netfilter.Forward || c.Priority != 10 || c.Policy != netfilter.PolicyDrop || len(c.Rules) != 3 {
		t.Fatalf("%+v", c)
	}
	if r := c.Rules[0]; r.Text != `counter accept comment "why"` || r.Line != 6 || r.Counters != (netfilter.Counters{Packets: 7, Bytes: 8}) || !r.Counted || r.Comment() != "why" {
		t.Errorf("%+v", r)
	}
	if r := c.Rules[1]; r.Text != "ip saddr { 10.0.0.1, 10.0.0.2 } drop" || r.Line != 8 {
		t.Errorf("%+v", r)
	}
	if r := c.Rules[2]; r.Text != "tcp dport 5 drop" || r.Line != 9 {
		t.Errorf("%+v", r)
	}
}

func TestPriorities(t *testing.T) {
	for text, want := range map[string]int{
		"filter hook input priority 0": 0, "filter hook input priority filter": 0, "nat hook prerouting priority dstnat": -100, "nat hook prerouting priority dstnat - 10": -110,
		"nat hook prerouting priority dstnat-10": -110, "nat hook postrouting priority srcnat + 1": 101, "filter hook input priority security": 50, "filter hook prerouting priority raw": -300,
		"route hook output priority mangle": -150, "filter hook input priority -5": -5, "filter hook input priority filter+3": 3,
	} {
		d, err := nfttext.Parse("t", "table ip t { chain c { type "+text+"; policy accept; }; }")
		if err != nil || d.Tables[0].Chain("c").Priority != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A script for nft -f that adds, flushes and deletes.
func TestScript(t *testing.T) {
	d, err := nfttext.Parse("t", `flush ruleset
add table ip t
add chain t c { type filter hook input priority 0 ; policy drop ; }
add chain ip t gone
delete chain ip t gone
add rule t c tcp dport 3 accept
insert rule ip t c tcp dport 1 accept
add rule ip t c index 0 tcp dport 2 accept
add set ip t s { type ipv4_addr ; flags interval ; comment "x" ; }
add element ip t s { 10.0.0.0/24, 10.0.2.1 comment "one" }
add element ip t s { 10.0.3.1 }
delete element ip t s { 10.0.2.1 }
add map ip t m { type ipv4_addr . inet_service : verdict ; }
add element ip t m { 10.0.0.1 . 80 : goto c, 10.0.0.2 . 443 comment "b" : drop }
delete element ip t m { 10.0.0.2 . 443 : drop }
add table ip empty
delete table ip empty
table ip6 t { chain c { tcp dport 1 accept; }; }
flush chain ip6 t c
add counter ip t x { packets 1 bytes 2 }
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Tables) != 2 || d.Tables[0].Name != "ip t" || d.Tables[1].Name != "ip6 t" || d.Tables[1].Chain("c").Rules != nil {
		t.Fatalf("%+v", d.Tables)
	}
	tab := d.Tables[0]
	var got []string
	for _, r := range tab.Chain("c").Rules {
		got = append(got, r.Text)
	}
	if strings.Join(got, "|") != "tcp dport 1 accept|tcp dport 2 accept|tcp dport 3 accept" || tab.Chain("gone") != nil {
		t.Errorf("%q", got)
	}
	if s := tab.Set("s"); len(s.Elements) != 2 || s.Find("\x0a\x00\x00\x07") == nil || s.Find("\x0a\x00\x02\x01") != nil || s.Find("\x0a\x00\x03\x01") == nil {
		t.Errorf("%+v", s)
	}
	if m := tab.Set("m"); len(m.Elements) != 1 || m.Find("\x0a\x00\x00\x01\x00\x50").Verdict != (netfilter.Jump{Chain: "c", Goto: true}) {
		t.Errorf("%+v", m)
	}
}

// What is no ruleset is an error with its line.
func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"table ip t {\n\tchain c {\n":              "nfttext: t:2: the block that begins here has no end",
		"define x = 5":                             `nfttext: t:1: the command "define" is not read; the output of nft list ruleset is`,
		"include \"x\"":                            `nfttext: t:1: the command "include" is not read; the output of nft list ruleset is`,
		"add rule ip t c accept":                   "nfttext: t:1: table ip t has no chain c yet",
		"table ip t { chain c { tcp dport { 1, 2":  "nfttext: t:1: the rule that begins here has no end",
		"\n\ntable ip t {\n\tgadget x {}\n}":       `nfttext: t:4: an object of the kind "gadget" is not known`,
		"table ip t { chain c { type filter; }; }": "nfttext: t:1: the chain c has no type and hook",
		"table ip t { chain c { type filter hook input priority lots; }; }": `nfttext: t:1: "lots" is no priority`,
		"table ip t { set s { type ipv4_addr; elements = { 1.2.3.4":         "nfttext: t:1: the elements of s have no end",
		"table ip t { chain c { }\n}\ndelete rule ip t c handle 5":          "nfttext: t:3: a rule that is deleted by its handle cannot be found in a text",
	} {
		if _, err := nfttext.Parse("t", text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// What is passed over is said.
func TestWarnings(t *testing.T) {
	d, err := nfttext.Parse("t", `table netdev n { chain i { type filter hook ingress device "eth0" priority 0; policy accept; drop; }; }
table bridge b { chain f { type filter hook forward priority filter; drop; }; }
table inet t { flowtable f { hook ingress priority 0; devices = { eth0 }; }
	chain i { type filter hook ingress device "eth0" priority 0; drop; }; }
table ip off { flags dormant; chain c { type filter hook input priority 0; drop; }; }
table ip filter { chain FORWARD { type filter hook forward priority filter; policy accept; }; }
`)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(d.Warnings, "\n")
	want := `table netdev n is not of IP: its rules are not followed
table bridge b is not of IP: its rules are not followed
table inet t has flowtable f: packets of connections that it takes over see no rule
chain i of table inet t (type filter, hook ingress) is not modelled: its rules are not followed
table ip off is dormant: its rules do not run and were left out
table ip filter is iptables' own: nft does not show its comments and some of its matches; iptables-nft-save does`
	if got != want || len(d.Tables) != 2 {
		t.Errorf("%s\n%d tables", got, len(d.Tables))
	}
}

// Elements of each type of key, with ranges, time-outs and comments.
func TestElements(t *testing.T) {
	d, err := nfttext.Parse("t", `table ip t {
	map v { type ipv4_addr . inet_proto . inet_service : verdict; flags interval; elements = { 10.0.0.0/24 . tcp . 80-90 counter packets 0 bytes 0 comment "a/b:p" : goto x,
		* counter packets 1 bytes 2 : continue } }
	set dyn { type ipv4_addr; flags dynamic,timeout; timeout 3h; elements = { 10.0.0.1 timeout 3h expires 2h59m3s4ms, 10.0.0.2 limit rate 3/second burst 5 packets } }
	map p { type ipv4_addr : classid; elements = { 10.0.0.1 : abcd:1234, 10.0.0.2 : none, 10.0.0.3 : :5 } }
	set i { type ifname . mark; elements = { "eth0" . 0x5, "weird name" . 6 } }
	set u { type cgroupsv2; elements = { "a/b" } }
	set bad { type ipv4_addr; elements = { 10.0.0.1, ten } }
	map nets { type ipv4_addr : interval ipv4_addr; flags interval; elements = { 10.0.0.1 : 10.1.0.0/24 } }
	set mac { type ether_addr; elements = { 02:00:00:00:00:01 } }
}
table ip6 t {
	map v { type ipv6_addr . inet_proto . inet_service : verdict; elements = { fd00::1 . tcp . 80 : drop } }
	set r { type ipv6_addr; flags interval; elements = { fd00::/64, fd01::1-fd01::9, ::1 } }
}`)
	if err != nil {
		t.Fatal(err)
	}
	set := func(i int, name string) *netfilter.NFTSet { return d.Tables[i].Set(name) }
	v := set(0, "v")
	key := func(last byte, port uint16) string {
		return "\x0a\x00\x00" + string([]byte{last, 6, byte(port >> 8), byte(port)})
	}
	if e := v.Find(key(7, 85)); e == nil || e.Comment != "a/b:p" || e.Verdict != (netfilter.Jump{Chain: "x", Goto: true}) {
		t.Errorf("%+v", e)
	}
	if e := v.Find(key(7, 91)); e == nil || !e.Any || e.Verdict != (netfilter.Continue{}) {
		t.Errorf("%+v", e)
	}
	if s := set(0, "dyn"); len(s.Elements) != 2 || s.Elements[0].Expires != "2h59m3s4ms" || !s.Dynamic {
		t.Errorf("%+v", s)
	}
	if s := set(0, "p"); s.Elements[0].Data != "\xab\xcd\x12\x34" || s.Elements[1].Data != "\x00\x00\x00\x00" || s.Elements[2].Data != "\x00\x00\x00\x05" {
		t.Errorf("%+v", s)
	}
	if s := set(0, "i"); len(s.Elements) != 2 || netfilter.Format(s.Key, s.Elements[1].First) != "weird name . 0x6" {
		t.Errorf("%+v", s)
	}
	if set(0, "u").Doubt != "the type of the keys of set u is not understood" || set(0, "bad").Doubt != "an element of set bad is not understood: ten" {
		t.Errorf("%q %q", set(0, "u").Doubt, set(0, "bad").Doubt)
	}
	if s := set(0, "nets"); s.Elements[0].Data != "\x0a\x01\x00\x00" || s.Elements[0].DataLast != "\x0a\x01\x00\xff" {
		t.Errorf("%+v", s)
	}
	if s := set(0, "mac"); len(s.Elements) != 1 || s.Doubt != "" {
		t.Errorf("%+v", s)
	}
	if s := set(1, "r"); len(s.Elements) != 3 || s.Doubt != "" {
		t.Errorf("%+v", s)
	}
	if s := set(1, "v"); len(s.Elements) != 1 || s.Elements[0].Verdict != (netfilter.Drop{}) {
		t.Errorf("%+v", s)
	}
}

// FuzzParse: no text makes the reader fall, and the text of each rule it read
// means the same again.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../../testdata/nft/*")
	if err != nil || len(files) == 0 {
		f.Fatal(err, files)
	}
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil && !strings.HasSuffix(name, ".json") {
			f.Add(string(b))
		}
	}
	f.Add("add table ip t; add chain ip t c { type nat hook output priority -100 ; }; add rule ip t c dnat to [::1]:5")
	f.Add("table inet t { map m { type ifname : verdict; elements = { \"a*\" : jump c, * : drop } }; chain c { meta mark set (mark | 1) & 7 counter; }; }")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := nfttext.Parse("fuzz", text)
		if err != nil {
			return
		}
		for _, tab := range d.Tables {
			for _, c := range tab.Chains() {
				for _, r := range c.Rules {
					if strings.ContainsAny(r.Text, "\"#\\@") || len(r.Statements) == 0 {
						continue // a quote without an end, a remark, a set of this table
					}
					family, _, _ := strings.Cut(tab.Name, " ")
					again, err := nfttext.Parse("again", "table "+family+" t {\nchain c {\n"+r.Text+"\n}\n}")
					if err != nil || len(again.Tables[0].Chain("c").Rules) != 1 {
						t.Fatalf("%q does not parse again: %v", r.Text, err)
					}
					if x, y := forget(again.Tables[0].Chain("c").Rules[0]), forget(r); x != y {
						t.Fatalf("%q means %s, and read again %s", r.Text, y, x)
					}
				}
			}
		}
	})
}
