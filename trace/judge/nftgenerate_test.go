package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// nftPlan is a random ruleset of nft with the addresses worth calling.
type nftPlan struct {
	r     *rand.Rand
	b     strings.Builder
	shots plan
}

// nftHooks are the hooks with the types of chains they may have.
var nftHooks = []struct {
	name  string
	types []string
}{
	{"prerouting", []string{"filter", "filter", "nat", "nat"}}, {"input", []string{"filter", "nat"}}, {"forward", []string{"filter"}},
	{"output", []string{"filter", "filter", "nat", "nat", "route"}}, {"postrouting", []string{"filter", "nat", "nat"}},
}

// traced marks the packets that are sent, and makes conntrack run: the node's
// own answers have a TTL of 77. What is
// delivered ends in the last chain, so that it does not answer.
const traced = `table inet judge {
	chain pre {
		type filter hook prerouting priority -500; policy accept;
		meta l4proto { tcp, udp } ip ttl != 77 meta nftrace set 1
	}
	chain out {
		type filter hook output priority -500; policy accept;
		meta l4proto { tcp, udp } ip ttl != 77 meta nftrace set 1
	}
	chain last {
		type filter hook input priority 290; policy accept;
		ct state new,established,related,invalid,untracked drop
	}
}
`

// generateNFT makes a ruleset: a proxy's table for a few Services, and tables
// of others.
func generateNFT(r *rand.Rand) *nftPlan {
	p := &nftPlan{r: r}
	for i := range 2 + r.IntN(4) {
		p.service(i)
	}
	text := p.b.String()
	p.b.Reset()
	p.b.WriteString(traced)
	if chance(r, 80) {
		p.proxy(text)
	}
	for i := range 1 + r.IntN(3) {
		p.foreign(i)
	}
	return p
}

func (p *nftPlan) text() string { return p.b.String() }

func (p *nftPlan) line(format string, a ...any) { fmt.Fprintf(&p.b, format+"\n", a...) }

// service writes the elements of one Service, one line each with the map's
// name in front.
func (p *nftPlan) service(i int) {
	r := p.r
	proto := one(r, "tcp", "tcp", "udp")
	vip, port, nodePort := fmt.Sprintf("10.96.0.%d", 10+i), 80+i, 30000+i
	p.shots.targets = append(p.shots.targets, fmt.Sprintf("%s %d %s", vip, port, proto))
	p.shots.nodePort = append(p.shots.nodePort, fmt.Sprintf("%d %s", nodePort, proto))
	eps := []string{"10.244.0.4 . 80", "10.244.0.9 . 8080", "10.244.0.12 . 80", "10.244.1.7 . 80", nodeAddr + " . 6443"}
	r.Shuffle(len(eps), func(a, b int) { eps[a], eps[b] = eps[b], eps[a] })
	n := r.IntN(5)
	key := fmt.Sprintf("%s . %s . %d", vip, proto, port)
	if n == 0 {
		p.line("none %s : %s", key, one(r, "goto refuse", "drop", "goto refuse"))
		return
	}
	for slot, e := range eps[:n] {
		p.line("eps-%d %s . %d : %s", n, key, slot, e)
		p.line("np-eps-%d %s . %d . %d : %s", n, proto, nodePort, slot, e)
		if strings.HasPrefix(e, "10.244.0.") {
			a, epPort, _ := strings.Cut(e, " . ")
			p.line("hairpin %s . %s . %s . %s", a, a, proto, epPort)
		}
	}
	p.line("services %s : goto lb-%d", key, n)
	p.line("nodeports %s . %d : goto np-%d", proto, nodePort, n)
	p.line("cluster %s", vip)
	if chance(r, 30) {
		p.line("limited %s", key)
		p.line("sources %s . %s", key, one(r, "172.22.7.0/24", "10.244.0.0/28", "203.0.113.9", "172.22.7.80-172.22.7.220"))
	}
}

// proxySets are the sets of the proxy's table.
var proxySets = []struct{ name, kind, decl string }{
	{"services", "map", "type ipv4_addr . inet_proto . inet_service : verdict"}, {"nodeports", "map", "type inet_proto . inet_service : verdict"},
	{"none", "map", "type ipv4_addr . inet_proto . inet_service : verdict"}, {"cluster", "set", "type ipv4_addr"},
	{"hairpin", "set", "type ipv4_addr . ipv4_addr . inet_proto . inet_service"}, {"limited", "set", "type ipv4_addr . inet_proto . inet_service"},
	{"sources", "set", "type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags interval"},
}

const slotTypes = "typeof ip daddr . meta l4proto . th dport . numgen random mod 65536 : ip daddr . th dport"

// proxy writes the table of a Service proxy that keeps endpoints in maps.
func (p *nftPlan) proxy(elements string) {
	r := p.r
	byMap := map[string][]string{}
	for _, l := range strings.Split(strings.TrimSpace(elements), "\n") {
		name, e, _ := strings.Cut(l, " ")
		if !slices.Contains(byMap[name], e) {
			byMap[name] = append(byMap[name], e)
		}
	}
	set := func(kind, name, decl string) {
		p.line("\t%s %s { %s;", kind, name, decl)
		if len(byMap[name]) > 0 {
			p.line("\t\telements = { %s }", strings.Join(byMap[name], ", "))
		}
		p.line("\t}")
	}
	p.line("table ip proxy {")
	for _, s := range proxySets {
		set(s.kind, s.name, s.decl)
	}
	for n := 1; n <= 4; n++ {
		set("map", fmt.Sprintf("eps-%d", n), slotTypes)
		set("map", fmt.Sprintf("np-eps-%d", n), strings.Replace(slotTypes, "ip daddr . meta", "meta", 1))
	}
	const key, portKey = "ip daddr . meta l4proto . th dport", "meta l4proto . th dport"
	p.line("\tchain refuse {\n\t\treject\n\t}")
	for n := 1; n <= 4; n++ {
		mark := one(r, "ip saddr != "+podRange+" ", "", "fib saddr type local ") + "meta mark set meta mark | 0x4000"
		gen := one(r, "random", "random", "inc")
		p.line("\tchain lb-%d {\n\t\t%s\n\t\tdnat ip to %s . numgen %s mod %d map @eps-%d\n\t\tcounter drop\n\t}", n, mark, key, gen, n, n)
		p.line("\tchain np-%d {\n\t\tmeta mark set meta mark | 0x4000\n\t\tdnat ip to %s . numgen random mod %d map @np-eps-%d\n\t\tcounter drop\n\t}", n, portKey, n, n)
	}
	p.line("\tchain dispatch {\n\t\t%s vmap @services\n\t\tfib daddr type local ip daddr != 127.0.0.0/8 %s vmap @nodeports\n\t}", key, portKey)
	p.line("\tchain check {\n\t\t%s vmap @none\n\t\tip daddr @cluster %s\n\t}", key, one(r, "reject", "drop", "reject with icmp admin-prohibited"))
	p.line("\tchain sources {\n\t\t%s @limited %s . ip saddr != @sources drop\n\t}", key, key)
	base := func(name, typ, hook, prio string, rules ...string) {
		p.line("\tchain %s {\n\t\ttype %s hook %s priority %s; policy accept;\n\t\t%s\n\t}", name, typ, hook, prio, strings.Join(rules, "\n\t\t"))
	}
	base("pre", "filter", "prerouting", "-110", "ct state new jump sources")
	base("early", "filter", "output", "-110", "ct state new jump sources")
	base("nat-pre", "nat", "prerouting", "dstnat", one(r, "jump", "goto")+" dispatch")
	base("nat-out", "nat", "output", "-100", "jump dispatch")
	base("in", "filter", "input", "filter", "ct state new jump check")
	base("forwarded", "filter", "forward", "filter", "ct state invalid counter drop", "ct state new jump check")
	base("out", "filter", "output", "filter", "ct state new jump check")
	base("nat-post", "nat", "postrouting", "srcnat", "meta mark & 0x4000 != 0 meta mark set meta mark ^ 0x4000 masquerade "+one(r, "fully-random", ""),
		"ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin masquerade fully-random")
	p.line("}")
}
