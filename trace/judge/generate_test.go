package judge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// plan is a set of rules with the addresses that are worth calling.
type plan struct {
	tables   map[string]*strings.Builder
	chains   map[string][]string
	targets  []string // "ip port proto"
	nodePort []string
}

func (p *plan) chain(table, name string) {
	if !slices.Contains(p.chains[table], name) {
		p.chains[table] = append(p.chains[table], name)
	}
}

func (p *plan) rule(table, format string, a ...any) {
	if p.tables[table] == nil {
		p.tables[table] = &strings.Builder{}
	}
	fmt.Fprintf(p.tables[table], "-A "+format+"\n", a...)
}

// text writes the tables as restore input.
func (p *plan) text(only ...string) string {
	var b strings.Builder
	for _, table := range netfilter.TableNames {
		if p.tables[table] == nil || (len(only) > 0 && !slices.Contains(only, table)) {
			continue
		}
		b.WriteString("*" + table + "\n")
		for _, h := range netfilter.TableHooks(table) {
			b.WriteString(":" + h.ChainName() + " ACCEPT [0:0]\n")
		}
		for _, c := range p.chains[table] {
			b.WriteString(":" + c + " - [0:0]\n")
		}
		b.WriteString(p.tables[table].String() + "COMMIT\n")
	}
	return b.String()
}

func one[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func chance(r *rand.Rand, percent int) bool { return r.IntN(100) < percent }

// generate makes a node's rules: a proxy's chains for a few Services, and
// foreign rules before, between and after.
func generate(r *rand.Rand) *plan {
	p := &plan{tables: map[string]*strings.Builder{}, chains: map[string][]string{}}
	for _, c := range []string{"KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-MARK-MASQ", "KUBE-POSTROUTING"} {
		p.chain("nat", c)
	}
	for _, c := range []string{"KUBE-SERVICES", "KUBE-FORWARD", "KUBE-FIREWALL"} {
		p.chain("filter", c)
	}
	p.foreignFirst(r)
	p.rule("nat", "PREROUTING -j KUBE-SERVICES")
	p.rule("nat", "OUTPUT -j KUBE-SERVICES")
	p.rule("nat", "POSTROUTING -j KUBE-POSTROUTING")
	p.rule("nat", "KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000")
	p.rule("nat", "KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN")
	p.rule("nat", "KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0")
	p.rule("nat", "KUBE-POSTROUTING -j MASQUERADE %s", one(r, "", "--random-fully"))
	p.rule("filter", "FORWARD -j KUBE-FORWARD")
	for _, h := range []string{"FORWARD", "OUTPUT"} {
		p.rule("filter", "%s -m conntrack --ctstate NEW -j KUBE-SERVICES", h)
	}
	p.rule("filter", "INPUT -j KUBE-FIREWALL")
	p.rule("filter", "KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP")
	p.rule("filter", "KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
	p.rule("filter", "KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT")
	p.rule("filter", "KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	for i := range 2 + r.IntN(4) {
		p.service(r, i)
	}
	p.rule("nat", "KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
	p.foreignLast(r)
	// What is delivered ends here, so that the node does not answer.
	p.rule("security", "INPUT -j DROP")
	return p
}

// service writes one Service as a proxy does.
func (p *plan) service(r *rand.Rand, i int) {
	proto := one(r, "tcp", "tcp", "udp")
	vip, port := fmt.Sprintf("10.96.0.%d", 10+i), 80+i
	match := fmt.Sprintf("-d %s/32 -p %s -m %s --dport %d", vip, proto, proto, port)
	p.targets = append(p.targets, fmt.Sprintf("%s %d %s", vip, port, proto))
	all := []string{"10.244.0.4:80", "10.244.0.9:8080", "10.244.0.12:80", "10.244.1.7:80", nodeAddr + ":6443"}
	r.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
	eps := all[:max(0, r.IntN(5)-1)]
	if len(eps) == 0 {
		p.rule("filter", "KUBE-SERVICES %s -j %s", match, one(r, "REJECT", "REJECT", "REJECT", "REJECT", "DROP"))
		return
	}
	// EXL is EXT of a Service with external policy Local.
	svc, ext, svl := fmt.Sprintf("SVC-%d", i), fmt.Sprintf("%s-%d", one(r, "EXT", "EXL", "EXL"), i), fmt.Sprintf("SVL-%d", i)
	p.chain("nat", svc)
	p.rule("nat", "KUBE-SERVICES %s -j %s", match, svc)
	p.rule("nat", "%s %s %s -j KUBE-MARK-MASQ", svc, one(r, "! -s "+podRange, "! -s "+podRange, ""), match)
	p.balance(r, svc, i, proto, eps)
	if !chance(r, 85) {
		return
	}
	nodePort := 30000 + i
	p.nodePort = append(p.nodePort, fmt.Sprintf("%d %s", nodePort, proto))
	p.chain("nat", ext)
	p.rule("nat", "KUBE-NODEPORTS -p %s -m %s --dport %d -j %s", proto, proto, nodePort, ext)
	if ext[2] == 'T' {
		p.rule("nat", "%s -j KUBE-MARK-MASQ", ext)
		p.rule("nat", "%s -j %s", ext, svc)
		return
	}
	// External policy Local.
	local := slices.DeleteFunc(slices.Clone(eps), func(e string) bool { return !strings.HasPrefix(e, "10.244.0.") })
	p.chain("nat", svl)
	p.rule("nat", "%s -s %s -j %s", ext, podRange, svc)
	p.rule("nat", "%s -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ", ext)
	p.rule("nat", "%s -m addrtype --src-type LOCAL -j %s", ext, svc)
	p.rule("nat", "%s -j %s", ext, svl)
	if len(local) == 0 {
		p.rule("filter", "INPUT -p %s -m %s --dport %d -m addrtype --dst-type LOCAL -j DROP", proto, proto, nodePort)
		return
	}
	p.balance(r, svl, i, proto, local)
}

func (p *plan) balance(r *rand.Rand, chain string, i int, proto string, eps []string) {
	for n, ep := range eps {
		sep := fmt.Sprintf("SEP-%d-%s", i, strings.Split(ep, ":")[0])
		random := ""
		if left := len(eps) - n; left > 1 {
			random = fmt.Sprintf("-m statistic --mode random --probability %.10f", 1/float64(left))
		}
		p.rule("nat", "%s %s -j %s", chain, random, sep)
		if slices.Contains(p.chains["nat"], sep) {
			continue
		}
		p.chain("nat", sep)
		p.rule("nat", "%s -s %s/32 -j KUBE-MARK-MASQ", sep, strings.Split(ep, ":")[0])
		p.rule("nat", "%s -p %s -m %s -j DNAT --to-destination %s", sep, proto, proto, ep)
	}
}

// condition is a random match.
func condition(r *rand.Rand, hook string) string {
	list := []string{
		"-s 10.244.0.0/24", "! -s 10.244.0.0/16", "-d 10.244.0.0/16", "-p tcp", "-p udp", "-p tcp -m multiport --dports 80,81,8080", "-m mark --mark 0x4000/0x4000",
		"-m mark --mark 0x1/0x1", "-m iprange --src-range 172.22.7.100-172.22.7.250", "-p tcp -m tcp --dport 30000:30010", "-m addrtype --dst-type LOCAL", "-m addrtype ! --src-type LOCAL",
		"-m conntrack --ctstate NEW", "-m conntrack --ctstate INVALID", "-m conntrack --ctstate DNAT", "-m conntrack --ctorigdst 10.96.0.0/12", "-m ttl --ttl-eq 63", "-m ttl --ttl-gt 63",
		"-p tcp -m tcp --tcp-flags SYN,RST RST", "-m u32 --u32 \"6&0xFF=17\"", "",
	}
	if hook != "OUTPUT" && hook != "POSTROUTING" {
		list = append(list, "-i eth0", "-i cni0", "! -i eth0", "-i cni+", "-i lo")
	}
	if hook == "FORWARD" || hook == "OUTPUT" || hook == "POSTROUTING" {
		list = append(list, "-o eth0", "-o cni0", "! -o cni0", "-o lo")
	}
	if hook == "FORWARD" {
		list = append(list, "-m physdev --physdev-is-bridged", "-m physdev ! --physdev-is-bridged")
	}
	return one(r, list...)
}

// foreignFirst writes rules of others: marks, counters, chains by goto.
func (p *plan) foreignFirst(r *rand.Rand) {
	for range r.IntN(4) {
		hook := one(r, "PREROUTING", "INPUT", "FORWARD", "POSTROUTING")
		p.rule("mangle", "%s %s -j MARK %s", hook, condition(r, hook), one(r, "--set-xmark 0x1/0x1", "--xor-mark 0x3", "--and-mark 0xfffe", "--or-mark 0x10", "--set-mark 0x4001/0x1"))
	}
	if chance(r, 50) {
		p.chain("mangle", "FOREIGN")
		p.chain("mangle", "OTHER")
		p.rule("mangle", "PREROUTING -%s FOREIGN", one(r, "j", "g"))
		p.rule("mangle", "FOREIGN %s -%s OTHER", condition(r, "PREROUTING"), one(r, "j", "g"))
		p.rule("mangle", "FOREIGN %s -j RETURN", condition(r, "PREROUTING"))
		p.rule("mangle", "FOREIGN -j MARK --or-mark 0x20")
		p.rule("mangle", "OTHER %s", condition(r, "PREROUTING"))
		p.rule("mangle", "PREROUTING -m mark --mark 0x20/0x20")
	}
	if chance(r, 10) {
		p.rule("raw", "PREROUTING -p udp -d 10.96.0.10/32 -j CT --notrack")
	}
	for range r.IntN(3) {
		hook := one(r, "INPUT", "FORWARD")
		p.rule("filter", "%s %s -j %s", hook, condition(r, hook), one(r, "ACCEPT", "RETURN", "DROP"))
	}
	if chance(r, 30) {
		p.chain("nat", "DOCKER")
		p.rule("nat", "PREROUTING -m addrtype --dst-type LOCAL -j DOCKER")
		p.rule("nat", "DOCKER ! -i cni0 -p tcp -m tcp --dport 8088 -j DNAT --to-destination 10.244.0.12:80")
	}
}

// foreignLast writes what a pod network adds.
func (p *plan) foreignLast(r *rand.Rand) {
	if chance(r, 60) {
		p.chain("nat", "POSTRTG")
		p.rule("nat", "POSTROUTING -j POSTRTG")
		p.rule("nat", "POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN")
		p.rule("nat", "POSTRTG -s 10.244.0.0/24 -d %s -j RETURN", podRange)
		p.rule("nat", "POSTRTG ! -s %s -d 10.244.0.0/24 -j RETURN", podRange)
		p.rule("nat", "POSTRTG -s %s ! -d 224.0.0.0/4 -j %s", podRange, one(r, "MASQUERADE", "SNAT --to-source "+nodeAddr))
	}
	if chance(r, 50) {
		p.chain("filter", "FWD")
		p.rule("filter", "FORWARD -j FWD")
		p.rule("filter", "FWD -s %s -j ACCEPT", podRange)
		p.rule("filter", "FWD -d %s -j ACCEPT", podRange)
		if chance(r, 50) {
			p.rule("filter", "FORWARD -j %s", one(r, "DROP", "REJECT", "REJECT --reject-with icmp-admin-prohibited"))
		}
	}
}

// shot is one packet to send.
type shot struct {
	wire    int // -1: from the node itself
	src     string
	dst     string
	port    uint16
	proto   string
	invalid bool
}

// datagram is the packet of a shot; a number that no other has tells it from theirs.
func (s shot) datagram(number uint16) datagram {
	d := datagram{src: netip.MustParseAddr(s.src), dst: netip.MustParseAddr(s.dst), sport: 40000 + number, dport: s.port, proto: netfilter.UDP, id: 1000 + number}
	if s.proto == "tcp" {
		d.proto, d.flags = netfilter.TCP, netfilter.SYN
		if s.invalid {
			d.flags = netfilter.RST
		}
	}
	return d
}

// flow is what trace is asked about a shot.
func (s shot) flow(d datagram) trace.Flow {
	f := trace.Flow{Src: d.src, Dst: d.dst, SrcPort: d.sport, DstPort: d.dport, Proto: d.proto, TCPFlags: d.flags, Invalid: s.invalid, Local: s.wire < 0}
	if s.wire == 0 {
		f.In = "eth0"
	} else if s.wire > 0 {
		f.In = "cni0"
	}
	return f
}

// aim chooses a packet.
func (p *plan) aim(r *rand.Rand) shot {
	s := shot{wire: r.IntN(4) - 1}
	switch s.wire {
	case -1:
		s.src = one(r, nodeAddr, nodeAddr, "10.244.0.1", "127.0.0.1")
	case 0:
		s.src = one(r, "172.22.7.200", "203.0.113.9", "10.244.1.7")
	case 1:
		s.src = "10.244.0.4"
	case 2:
		s.src = one(r, "10.244.0.9", "10.244.0.12")
	}
	s.dst, s.port, s.proto = one(r, "10.244.0.4", "10.244.0.9", "10.244.1.7", "203.0.113.77", nodeAddr, "10.244.0.1"), 80, one(r, "tcp", "udp")
	switch n := r.IntN(10); {
	case n < 5:
		fmt.Sscan(one(r, p.targets...), &s.dst, &s.port, &s.proto)
	case n < 8 && len(p.nodePort) > 0:
		fmt.Sscan(one(r, p.nodePort...), &s.port, &s.proto)
		s.dst = one(r, nodeAddr, nodeAddr, "10.244.0.1")
		if s.wire < 0 && chance(r, 50) {
			s.dst = "127.0.0.1"
		}
	}
	if s.src == "127.0.0.1" && !netip.MustParseAddr(s.dst).IsLoopback() && !strings.HasPrefix(s.dst, "10.96.") {
		s.src = nodeAddr
	}
	if s.src == s.dst && s.wire >= 0 {
		s.dst = "203.0.113.77"
	}
	s.invalid = s.proto == "tcp" && chance(r, 12)
	return s
}
