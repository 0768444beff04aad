package judge

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
)

// foreign writes a table of random chains and rules.
func (p *nftPlan) foreign(i int) {
	r := p.r
	family := one(r, "ip", "inet", "inet")
	p.line("table %s foreign%d {", family, i)
	p.line("\tset nets { type ipv4_addr; flags interval; elements = { 10.244.0.0/29, 172.22.7.100-172.22.7.210, 203.0.113.9 } }")
	p.line("\tset ports { type inet_proto . inet_service; elements = { tcp . 80, udp . 81, tcp . 8080 } }")
	p.line("\tset seen { type ipv4_addr; flags dynamic,timeout; timeout 1h; }")
	p.line("\tmap marks { type ipv4_addr : mark; flags interval; elements = { 10.244.0.0/24 : 0x11, 172.22.0.0/16 : 0x12 } }")
	p.line("\tmap hosts { type ipv4_addr . inet_service : ipv4_addr . inet_service; elements = { 203.0.113.77 . 80 : 10.244.0.9 . 8080, %s . 30000 : 10.244.0.4 . 80 } }", nodeAddr)
	p.line("\tmap ways { type ifname : verdict; elements = { \"eth0\" : jump a, \"cni0\" : goto b, \"lo\" : continue } }")
	p.line("\tlimit slow { rate over 100000/second; }\n\tquota much { 1000 mbytes; }")
	chains := []string{"b", "a"} // a may call b
	for n, c := range chains {
		p.line("\tchain %s {", c)
		for range 1 + r.IntN(3) {
			p.line("\t\t%s", p.rule(family, "any", "filter", chains[:n]))
		}
		p.line("\t}")
	}
	for n := range 2 + r.IntN(5) {
		h := nftHooks[r.IntN(len(nftHooks))]
		typ := one(r, h.types...)
		p.line("\tchain base%d {\n\t\ttype %s hook %s priority %d; policy %s;", n, typ, h.name, priority(r, typ), one(r, "accept", "accept", "accept", "accept", "drop"))
		for range 1 + r.IntN(4) {
			p.line("\t\t%s", p.rule(family, h.name, typ, chains))
		}
		p.line("\t}")
	}
	p.line("}")
}

// priority is a place at a hook; equal ones and the usual ones are frequent.
func priority(r *rand.Rand, typ string) int {
	if typ == "nat" {
		return one(r, -100, -100, 100, 0, -150, 50, -110)
	}
	return one(r, 0, 0, 0, -300, -150, -110, -100, -90, 10, 50, 100, 110, -199, -201)
}

// rule writes a random rule.
func (p *nftPlan) rule(family, hook, typ string, chains []string) string {
	r := p.r
	var words []string
	for range r.IntN(4) {
		words = append(words, p.condition(family, hook))
	}
	for range r.IntN(3) {
		words = append(words, p.action(hook, typ))
		if chance(r, 20) {
			words = append(words, p.condition(family, hook))
		}
	}
	words = append(words, p.ending(hook, typ, chains))
	// nft 1.0.6 lists a rule that rejects with a TCP reset without its "meta
	// nfproto": its listing then says less than the kernel does.
	if strings.HasSuffix(words[len(words)-1], "reset") {
		words = slices.DeleteFunc(words, func(s string) bool { return strings.HasPrefix(s, "meta nfproto") })
	}
	// nft 1.0.6 lists "ip ttl < 64 th dport > 80" as "th dport != 64-80": two
	// orders one after the other as a range, whatever they are of. A range is
	// two orders.
	ordered := 0
	text := strings.Join(slices.DeleteFunc(words, func(s string) bool {
		if strings.Contains(s, " < ") || strings.Contains(s, " > ") || strings.Contains(s, " <= ") || plainRange.MatchString(s) {
			ordered++
			return ordered > 1
		}
		return s == ""
	}), " ")
	if text == "" {
		return "counter"
	}
	return text
}

// plainRange finds ranges of numbers that are no element of a set.
var plainRange = regexp.MustCompile(`^[^{]* [0-9a-fx]+-[0-9a-fx]+$`)

// condition is a random condition.
func (p *nftPlan) condition(family, hook string) string {
	r := p.r
	list := []string{
		"ip saddr 10.244.0.0/24", "ip saddr != 10.244.0.0/16", "ip daddr 10.244.0.0/16", "ip daddr { 10.96.0.10, 10.96.0.12-10.96.0.14, 10.244.0.0/30 }", "ip daddr != { 10.96.0.10, 203.0.113.77 }",
		"ip saddr @nets", "ip saddr != @nets", "ip daddr @nets", "meta l4proto . th dport @ports", "meta l4proto . th dport != @ports", "meta l4proto tcp", "meta l4proto { tcp, udp }", "ip protocol udp",
		"tcp dport 80", "udp dport != 80", "tcp dport { 80-90, 8080 }", "th dport > 80", "th dport <= 81", "tcp dport 80-8080", "tcp flags syn", "tcp flags & (fin|syn|rst|ack) == syn", "tcp flags ! rst", "tcp flags != syn",
		"meta mark 0x11", "meta mark & 0x4000 == 0x4000", "meta mark & 0xf0 != 0", "meta mark != 0", "meta mark > 0x10", "meta mark and 0x3 == 0x1", "meta mark 0x10-0x1f", "meta mark { 0x1, 0x11, 0x4000 }",
		"ct state new", "ct state established,related", "ct state invalid", "ct state != invalid", "ct state { new, untracked }", "ct state untracked", "ct status dnat", "ct status snat,dnat", "ct status & dnat == dnat", "ct status ! dnat",
		"ct direction original", "ct direction reply", "ct mark 0", "ct mark & 0xff == 0x5", "ct mark != 0x5", "ct original ip daddr 10.96.0.0/12", "ct original proto-dst 80-90", "ct reply ip saddr 10.244.0.0/16", "ct original ip saddr . ct original ip daddr { 10.244.0.4 . 10.96.0.10, 172.22.7.200 . 10.96.0.11 }",
		"fib daddr type local", "fib saddr type local", "fib daddr type != local", "fib saddr type { local, broadcast }", "fib daddr type unicast", "ip ttl 64", "ip ttl < 64", "ip ttl 63", "ip version 4", "ip hdrlength 5", "ip dscp cs0", "ip dscp ef", "ip frag-off & 0x1fff 0",
		"meta nfproto ipv4", "meta protocol ip", "@nh,72,8 6", "@th,16,16 80", "@nh,128,32 0x0af40004", "meta priority none", "meta priority 1:2", "meta priority 0:4",
		"ip saddr . ip daddr . th dport { 10.244.0.4 . 10.244.0.9 . 80, 172.22.7.0/24 . 10.0.0.0/8 . 80-90 }", "ip saddr & 0.0.0.255 == 0.0.0.4", "ip daddr & 255.255.0.0 != 10.96.0.0",
		"jhash ip saddr mod 4 seed 0x1234 < 2", "jhash ip saddr . ip daddr . th dport mod 2 seed 7 1", "jhash th dport mod 3 seed 0xdeadbeef 0", "jhash ip saddr . meta l4proto mod 4 seed 99 offset 10 { 10, 12 }",
		"numgen random mod 2 0", "numgen inc mod 2 1", "limit rate 100000/second", "limit name \"slow\"", "quota name \"much\"", "limit rate over 100000/second", "ip saddr @seen", "ip saddr != @seen", "counter",
		"numgen random mod 100 < 50", "symhash mod 2 0",
	}
	if family == "inet" {
		list = append(list, "ip6 saddr fd00::/8", "ip6 daddr != fd00::1", "icmpv6 type echo-request", "meta nfproto ipv6", "ip6 nexthdr tcp")
	}
	if hook != "output" && hook != "any" {
		list = append(list, "iifname \"eth0\"", "iifname \"cni*\"", "iifname != \"eth0\"", "iif lo", "iifname { \"eth0\", \"lo\" }", "iif != \"cni0\"")
	}
	if hook == "output" {
		list = append(list, "iifname != \"eth0\"", "iifname \"\"", "meta skuid 0", "meta skuid != 5", "oifname \"eth0\"")
		list = slices.DeleteFunc(list, func(s string) bool { return s == "iifname \"\"" })
	}
	if hook == "forward" || hook == "output" || hook == "postrouting" {
		list = append(list, "oifname \"cni0\"", "oifname != \"eth*\"", "oif eth0", "oifname . th dport { \"cni0\" . 80, \"eth0\" . 443 }")
	}
	if hook == "prerouting" {
		list = append(list, "fib saddr . iif oif missing", "fib saddr . iif oif exists", "fib saddr . iif oif 0", "fib saddr . mark . iif oif missing", "fib daddr . iif type local", "fib saddr oifname \"eth0\"")
	}
	return one(r, list...)
}

// action is a random statement that does not end the rule.
func (p *nftPlan) action(hook, typ string) string {
	r := p.r
	list := []string{
		"meta mark set 0x1", "meta mark set meta mark | 0x4000", "meta mark set meta mark & 0xffffbfff", "meta mark set meta mark ^ 0x3", "meta mark set ct mark", "meta mark set meta mark << 4", "meta mark set meta mark & 0xff | 0x100",
		"meta mark set ip saddr map @marks", "meta mark set ip daddr map { 10.96.0.10 : 0x21, 10.96.0.11 : 0x22, 10.244.0.0/16 : 0x23 }", "meta mark set numgen random mod 3 offset 16", "meta mark set jhash ip saddr mod 16 seed 5 offset 1", "meta mark set jhash ip saddr . th dport mod 7 seed 21",
		"ct mark set 0x5", "ct mark set meta mark", "ct mark set ct mark | 0x50", "meta priority set 1:2", "meta priority set none", "ip ttl set 60", "ip dscp set ef",
		"add @seen { ip saddr }", "update @seen { ip saddr timeout 5m }", "counter", "",
	}
	return one(r, list...)
}

// ending is the end of a rule that suits its place.
func (p *nftPlan) ending(hook, typ string, chains []string) string {
	r := p.r
	list := []string{"", "", "", "accept", "return", "continue", "drop", "counter accept"}
	if hook != "any" {
		for _, c := range chains {
			list = append(list, "jump "+c, "goto "+c, "jump "+c)
		}
		if len(chains) == 2 {
			list = append(list, "ip daddr vmap { 10.96.0.10 : jump a, 10.96.0.11 : goto b, 10.244.0.0/24 : accept, 203.0.113.77 : return }", "ct state vmap { established : accept, invalid : drop, new : jump a }", "meta l4proto . th dport vmap { tcp . 80 : goto a, udp . 80-90 : jump b }",
				"numgen random mod 3 vmap { 0 : jump a, 1 : goto b }", "jhash ip saddr mod 4 seed 3 vmap { 0 : jump a, 1 : accept, 2-3 : goto b }", "fib daddr type vmap { local : jump a, unicast : continue }")
			if hook != "output" && hook != "postrouting" {
				list = append(list, "iifname vmap @ways")
			}
		}
	}
	if typ == "filter" && (hook == "input" || hook == "forward" || hook == "output") {
		list = append(list, "reject", "meta l4proto tcp reject with tcp reset", "reject with icmp host-unreachable")
	}
	if typ != "nat" {
		return one(r, list...)
	}
	switch hook {
	case "prerouting", "output":
		list = append(list, "dnat ip to 10.244.0.9", "meta l4proto { tcp, udp } dnat ip to 10.244.0.4:80", "meta l4proto { tcp, udp } redirect to :6443", "meta l4proto { tcp, udp } dnat ip to ip daddr . th dport map @hosts", "ip protocol tcp dnat ip to ip saddr map { 172.22.7.200 : 10.244.0.4, 10.244.0.0/24 : 10.244.1.7 }",
			"meta l4proto { tcp, udp } dnat ip addr . port to numgen random mod 3 map { 0 : 10.244.0.4 . 80, 1 : 10.244.0.9 . 8080, 2 : 10.244.0.9 . 8080 }", "meta l4proto tcp dnat ip to jhash ip saddr mod 2 seed 77 map { 0 : 10.244.0.9, 1 : 10.244.1.7 }:80", "tcp dport 80 dnat to :8080", "meta l4proto { tcp, udp } dnat ip to 10.244.0.9 : th dport map { 80 : 8080, 81 : 80 }")
		list = slices.DeleteFunc(list, func(s string) bool { return strings.HasPrefix(s, "tcp dport 80 dnat to :") })
	case "input":
		list = append(list, "snat ip to 10.244.0.1")
	case "postrouting":
		list = append(list, "masquerade", "masquerade fully-random", "snat ip to "+nodeAddr, "snat ip to ip daddr map { 10.244.0.0/16 : 10.244.0.1, 203.0.113.0/24 : "+nodeAddr+" }", "meta l4proto { tcp, udp } snat ip to "+nodeAddr+":1024-2048", "meta l4proto tcp masquerade to :1500-2500")
	}
	return one(r, list...)
}
