package judge

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// Rules that nobody wrote: any matches and any targets that are legal at a hook,
// in chains that call each other. What depends on things that a packet and a host
// description do not tell (length, content, time, other sockets) is left out.

// wild draws a web of chains in one table. Chain n may call those behind it, so
// there is no circle.
func (g generator) wild(s *sheet, table string) {
	for _, hook := range some(g, 60, netfilter.TableHooks(table)...) {
		prefix := "W-" + table + "-" + hook.ChainName() + "-"
		const chains = 3
		for n := range chains {
			s.chain(table, fmt.Sprint(prefix, n))
			for range 1 + g.IntN(4) {
				s.rule(table, "-A %s%d %s", prefix, n, together(g.matches(s, hook, table), g.target(s, hook, table, prefix, n, chains)))
			}
		}
		for range 1 + g.IntN(2) {
			s.rule(table, "-%s %s %s -j %s%d", one(g, "A", "I"), hook.ChainName(), g.matches(s, hook, table), prefix, g.IntN(chains))
		}
	}
}

// together joins matches and a target. A target that needs a protocol brings it
// along, unless the matches have chosen another.
func together(matches, target string) string {
	if proto, _, needs := strings.Cut(target, " -j "); needs && strings.Contains(matches, "-p ") {
		if !strings.HasPrefix(matches, proto) {
			return matches
		}
		target = strings.TrimPrefix(target, proto+" ")
	}
	return matches + " " + target
}

// matches draws one to three conditions. A protocol comes first, since others need it.
func (g generator) matches(s *sheet, hook netfilter.Hook, table string) string {
	var out []string
	if g.chance(60) {
		out = append(out, g.protocol(s, hook))
	}
	if g.chance(50) {
		out = append(out, g.address(s))
	}
	if g.chance(30) {
		out = append(out, g.iface(hook))
	}
	for range g.IntN(2) {
		out = append(out, g.match(s, hook, table))
	}
	return strings.Join(out, " ")
}

// not puts a "!" in front now and then.
func (g generator) not() string { return one(g, "", "", "", "! ") }

func (g generator) port() string {
	n := one(g, 80, 53, 443, 8080, 5353, 30000+g.IntN(200), dockerPort, 9000)
	return one(g, fmt.Sprint(n), fmt.Sprint(n), fmt.Sprintf("%d:%d", n, n+g.IntN(5000)), fmt.Sprintf(":%d", n), fmt.Sprintf("%d:", n))
}

func (g generator) protocol(s *sheet, hook netfilter.Hook) string {
	p := one(g, "tcp", "udp")
	// A packet of the node to itself may come back with a port that was drawn.
	sport := hook != netfilter.Prerouting && hook != netfilter.Input
	switch k := g.IntN(9); {
	case k == 0:
		return "-p tcp"
	case k == 1:
		return "! -p udp"
	case k == 2 && sport:
		return fmt.Sprintf("-p %s -m multiport %s--%s %d,%d:%d", p, g.not(), one(g, "ports", "sports"), one(g, 80, 53), 8000, one(g, 8100, 40000))
	case k == 3 && sport:
		return fmt.Sprintf("-p %s -m %s %s--sport %s", p, p, g.not(), one(g, "10000:14000", "12000:", ":11000"))
	case k == 2, k == 3:
		return fmt.Sprintf("-p %s -m multiport %s--dports %d,%d:%d", p, g.not(), one(g, 80, 53), 8000, one(g, 8100, 40000))
	case k == 4:
		return "-p tcp -m tcp " + one(g, "--syn", "! --syn", "--tcp-flags SYN,ACK,FIN,RST ACK", "--tcp-flags FIN,RST NONE", "! --tcp-flags ALL SYN")
	case k == 5:
		return s.v("-p icmp -m icmp --icmp-type 8", "-p ipv6-icmp -m icmp6 --icmpv6-type 128")
	case k == 6:
		return fmt.Sprintf("-p %s ", p) + s.v("-m u32 --u32 \"0>>22&0x3C@0&0xFFFF=53:80\"", "-m u32 --u32 \"40&0xFFFF=53:80\"")
	}
	return fmt.Sprintf("-p %s -m %s %s--dport %s", p, p, g.not(), g.port())
}

func (g generator) address(s *sheet) string {
	side := one(g, "-s", "-d")
	addr := one(g, s.podsHere(), s.podsAll(), s.pod(1+g.IntN(5)), s.client(), s.v("192.0.2.0/24", "2001:db8::/64"), s.v("192.0.2.11", "2001:db8::11"),
		s.v("10.96.0.0/16", "fd00:96::/112"), s.v("10.96.1.0/28", "fd00:96::100/124"), s.v("198.51.100.0/24", "2001:db8:198::/64"), s.v("127.0.0.0/8", "::1"), s.v("10.244.1.1", "fd00:244:1::1"))
	return g.not() + side + " " + addr
}

// iface goes by an interface that the hook has.
func (g generator) iface(hook netfilter.Hook) string {
	option := "-o "
	if hook == netfilter.Prerouting || hook == netfilter.Input || hook == netfilter.Forward && g.chance(50) {
		option = "-i "
	}
	if g.chance(10) {
		// Not "! -i +": iptables-legacy-save 1.8.9 prints nothing for it, so that a rule
		// that never matches looks like one that always does.
		return option + "+"
	}
	return g.not() + option + one(g, "cni0", "eth0", "lo", "cni+", "eth+", "docker0")
}

func (g generator) match(s *sheet, hook netfilter.Hook, table string) string {
	list := []string{
		fmt.Sprintf("-m mark %s--mark 0x%x/0x%x", g.not(), one(g, 0, 0x1, 0x10, 0x20, 0x4000), one(g, 0x1, 0x30, 0xff, 0x4000)),
		fmt.Sprintf("-m connmark %s--mark 0x%x/0xff", g.not(), g.IntN(4)),
		fmt.Sprintf("-m conntrack %s--ctstate %s", g.not(), one(g, "NEW", "INVALID", "UNTRACKED", "ESTABLISHED", "RELATED,ESTABLISHED", "DNAT", "SNAT", "NEW,UNTRACKED", "SNAT,DNAT,INVALID")),
		fmt.Sprintf("-m conntrack %s--ctorigdst %s", g.not(), s.v("10.96.0.0/16", "fd00:96::/112")),
		fmt.Sprintf("-m conntrack %s--ctorigsrc %s", g.not(), s.podsAll()),
		fmt.Sprintf("-m conntrack %s--ctreplsrc %s", g.not(), s.podsHere()),
		fmt.Sprintf("-m conntrack --ctorigdstport %d", one(g, 80, 53, 443)),
		"-m conntrack --ctdir " + one(g, "ORIGINAL", "REPLY"),
		fmt.Sprintf("-m conntrack %s--ctstatus %s", g.not(), one(g, "NONE", "SEEN_REPLY", "CONFIRMED", "ASSURED")),
		"-m state --state NEW",
		fmt.Sprintf("-m addrtype %s--%s-type %s", g.not(), one(g, "src", "dst"), one(g, "LOCAL", "UNICAST", "MULTICAST", s.v("BROADCAST", "LOCAL"))),
		fmt.Sprintf("-m statistic --mode random %s--probability 0.%d", g.not(), 1+g.IntN(9)),
		fmt.Sprintf("-m statistic --mode nth --every %d --packet 0", 2+g.IntN(3)),
		fmt.Sprintf("-m iprange %s--%s-range %s-%s", g.not(), one(g, "src", "dst"), s.v("10.96.1.4", "fd00:96::104"), s.v("10.244.1.13", "fd00:244:1::13")),
		s.v("-m ttl --ttl-", "-m hl --hl-") + one(g, "eq 64", "lt 64", "gt 1"),
		"-m dscp --dscp 0x00",
		"-m comment --comment \"a \\\"quoted\\\" word\"",
		fmt.Sprintf("-m set %s--match-set J%d-ports dst,dst", g.not(), s.family),
		fmt.Sprintf("-m set %s--match-set J%d-nets %s", g.not(), s.family, one(g, "src", "dst")),
		"-m policy --pol none --dir " + one(g, "in", "in"),
		"-m recent --name wild --rsource --" + one(g, "set", "rcheck"),
	}
	switch hook {
	case netfilter.Prerouting, netfilter.Input, netfilter.Forward:
		list = append(list, "-m physdev "+g.not()+"--physdev-in veth"+fmt.Sprint(1+g.IntN(5)), "-m physdev --physdev-is-in",
			"-m addrtype --dst-type LOCAL --limit-iface-in")
	default:
		list = append(list, "-m owner "+g.not()+"--uid-owner "+one(g, "0", "0-10", "1000"))
		list[19] = "-m policy --pol none --dir out"
	}
	if hook == netfilter.Forward {
		list = append(list, "-m physdev "+g.not()+"--physdev-is-bridged")
	}
	if hook == netfilter.Prerouting && (table == netfilter.Raw || table == netfilter.Mangle) {
		list = append(list, "-m rpfilter "+one(g, "", "--loose ", "--validmark ")+one(g, "", "--invert"))
	}
	return one(g, list...)
}

// target draws what a rule does; "" only counts.
func (g generator) target(s *sheet, hook netfilter.Hook, table, prefix string, n, chains int) string {
	switch k := g.IntN(20); {
	case k < 5:
		return ""
	case k < 7:
		return "-j RETURN"
	case k < 9:
		return "-j ACCEPT"
	case k < 12 && n+1 < chains:
		return fmt.Sprintf("-%s %s%d", one(g, "j", "j", "g"), prefix, n+1+g.IntN(chains-n-1))
	case k < 13 && table != netfilter.NAT:
		return "-j DROP"
	case k < 14:
		return one(g, "-j LOG --log-prefix \"x: \"", "-j NFLOG --nflog-group 9")
	}
	switch table {
	case netfilter.Raw:
		return one(g, "", "-j CT --notrack", "-j RETURN")
	case netfilter.Mangle:
		return one(g, "-j MARK "+g.markOp(), "-j MARK "+g.markOp(), "-j CONNMARK --save-mark", "-j CONNMARK --restore-mark", "-j CONNMARK --set-xmark 0x3/0xf",
			"-j DSCP --set-dscp 0x00", s.v("-j TTL --ttl-", "-j HL --hl-")+one(g, "set 64", "inc 1", "dec 1"))
	case netfilter.NAT:
		return g.nat(s, hook)
	case netfilter.Filter:
		return one(g, "-j REJECT", "-j REJECT --reject-with "+one(g, s.rejects()...), "")
	}
	return ""
}

func (g generator) nat(s *sheet, hook netfilter.Hook) string {
	switch hook {
	case netfilter.Prerouting, netfilter.Output:
		return one(g, "-j DNAT --to-destination "+s.pod(1+g.IntN(4)), fmt.Sprintf("-p tcp -j DNAT --to-destination %s", s.to(s.pod(1+g.IntN(4)), one(g, 8080, 5353))),
			fmt.Sprintf("-j DNAT --to-destination %s-%s", s.pod(1), s.pod(4)), fmt.Sprintf("-p udp -j DNAT --to-destination %s-%d", s.to(s.pod(1), 8080), 8090),
			"-p tcp -j REDIRECT --to-ports 8080", "-j REDIRECT", "-j MARK --or-mark 0x4000")
	case netfilter.Postrouting:
		return one(g, "-j MASQUERADE", "-p tcp -j MASQUERADE --to-ports 40000-41000", "-j SNAT --to-source "+s.v("192.0.2.76", "2001:db8::76"),
			fmt.Sprintf("-j SNAT --to-source %s-%s", s.v("192.0.2.77", "2001:db8::77"), s.v("192.0.2.80", "2001:db8::7a")), "-j MARK --or-mark 0x4000")
	}
	return "-j SNAT --to-source " + s.v("192.0.2.99", "2001:db8::99")
}
