package judge

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// sheet is the input of iptables-restore of one family.
type sheet struct {
	family netfilter.Family
	chains map[string][]string // by table
	rules  map[string][]string
}

func newSheet(f netfilter.Family) *sheet {
	return &sheet{f, map[string][]string{}, map[string][]string{}}
}

func (s *sheet) chain(table string, names ...string) {
	for _, n := range names {
		s.chains[table] = append(s.chains[table], ":"+n+" - [0:0]")
	}
}

func (s *sheet) policy(table, chain, policy string) {
	s.chains[table] = append(s.chains[table], ":"+chain+" "+policy+" [0:0]")
}

func (s *sheet) rule(table, format string, args ...any) {
	s.rules[table] = append(s.rules[table], fmt.Sprintf(format, args...))
}

func (s *sheet) String() string {
	var b strings.Builder
	for _, table := range netfilter.TableNames {
		if len(s.rules[table]) > 0 || len(s.chains[table]) > 0 {
			fmt.Fprintf(&b, "*%s\n%s\n%s\nCOMMIT\n", table, strings.Join(s.chains[table], "\n"), strings.Join(s.rules[table], "\n"))
		}
	}
	return b.String()
}

// v chooses between the words of the two families.
func (s *sheet) v(four, six string) string {
	if s.family == netfilter.IPv6 {
		return six
	}
	return four
}

func (s *sheet) podsHere() string { return s.v("10.244.1.0/24", "fd00:244:1::/64") }
func (s *sheet) podsAll() string  { return s.v("10.244.0.0/16", "fd00:244::/32") }
func (s *sheet) pod(n int) string {
	return s.v(fmt.Sprintf("10.244.1.%d", 10+n), fmt.Sprintf("fd00:244:1::%d", 10+n))
}
func (s *sheet) client() string { return s.v("192.0.2.201", "2001:db8::201") }

// to is an address with a port, in the form of --to-destination.
func (s *sheet) to(addr string, port int) string {
	return s.v(fmt.Sprintf("%s:%d", addr, port), fmt.Sprintf("[%s]:%d", addr, port))
}

// The ports that foreign rules speak of, beside those of Services.
const (
	dockerPort  = 8088 // published by the container engine
	closedPort  = 9    // dropped at the node's INPUT
	refusedPort = 22   // rejected there
	untracked   = 5355
	redirected  = 8181
)

var foreignPorts = []uint16{dockerPort, closedPort, refusedPort, untracked, redirected, 443, 8080, 5353}

// foreign draws what others have on a node: a container engine, a pod network, a
// firewall, an administrator's own ideas. before is there when the proxy comes,
// after is added when it has gone.
func (g generator) foreign(f netfilter.Family) (before, after *sheet) {
	before, after = newSheet(f), newSheet(f)
	pick := func() *sheet { return one(g, before, after) }
	if g.chance(60) {
		g.docker(pick())
	}
	if g.chance(60) {
		g.flannel(pick())
	}
	g.firewall(pick())
	g.marks(pick())
	if g.chance(70) {
		g.untracked(pick())
	}
	for _, table := range some(g, 55, netfilter.TableNames...) {
		g.wild(pick(), table)
	}
	return before, after
}

func (g generator) docker(s *sheet) {
	s.chain("nat", "DOCKER")
	s.rule("nat", "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER")
	s.rule("nat", "-A OUTPUT ! -d %s -m addrtype --dst-type LOCAL -j DOCKER", s.v("127.0.0.0/8", "::1/128"))
	s.rule("nat", "-A POSTROUTING -s %s ! -o docker0 -j MASQUERADE", s.v("172.17.0.0/16", "fd17::/64"))
	s.rule("nat", "-A DOCKER -i docker0 -j RETURN")
	s.rule("nat", "-A DOCKER ! -i docker0 -p tcp -m tcp --dport %d -j DNAT --to-destination %s", dockerPort, s.to(s.pod(1+g.IntN(4)), 8080))
	s.chain("filter", "DOCKER-USER", "DOCKER-ISOLATION-STAGE-1", "DOCKER-ISOLATION-STAGE-2")
	s.rule("filter", "-A FORWARD -j DOCKER-USER")
	s.rule("filter", "-A FORWARD -j DOCKER-ISOLATION-STAGE-1")
	s.rule("filter", "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	s.rule("filter", "-A DOCKER-ISOLATION-STAGE-1 -i docker0 ! -o docker0 -j DOCKER-ISOLATION-STAGE-2")
	s.rule("filter", "-A DOCKER-ISOLATION-STAGE-1 -j RETURN")
	s.rule("filter", "-A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP")
	if g.chance(50) {
		s.rule("filter", "-A DOCKER-USER -s %s -p %s -m conntrack --ctorigdstport %d -j DROP", s.client(), one(g, "tcp", "udp"), 30000+g.IntN(200))
	}
	s.rule("filter", "-A DOCKER-USER -j RETURN")
	if g.chance(30) {
		s.policy("filter", "FORWARD", "DROP")
		s.rule("filter", "-A FORWARD -s %s -j ACCEPT", s.podsAll())
		s.rule("filter", "-A FORWARD -d %s -j ACCEPT", s.podsAll())
	}
}

func (g generator) flannel(s *sheet) {
	s.chain("filter", "FLANNEL-FWD")
	s.rule("filter", "-A FORWARD -j FLANNEL-FWD")
	s.rule("filter", "-A FLANNEL-FWD -s %s -m comment --comment \"flanneld forward\" -j ACCEPT", s.podsAll())
	s.rule("filter", "-A FLANNEL-FWD -d %s -m comment --comment \"flanneld forward\" -j ACCEPT", s.podsAll())
	s.chain("nat", "FLANNEL-POSTRTG")
	s.rule("nat", "-A POSTROUTING -m comment --comment \"flanneld masq\" -j FLANNEL-POSTRTG")
	s.rule("nat", "-A FLANNEL-POSTRTG -m mark --mark 0x4000/0x4000 -j RETURN")
	s.rule("nat", "-A FLANNEL-POSTRTG -s %s -d %s -j RETURN", s.podsHere(), s.podsAll())
	s.rule("nat", "-A FLANNEL-POSTRTG -s %s -d %s -j RETURN", s.podsAll(), s.podsHere())
	s.rule("nat", "-A FLANNEL-POSTRTG ! -s %s -d %s -j RETURN", s.podsAll(), s.podsHere())
	s.rule("nat", "-A FLANNEL-POSTRTG -s %s ! -d %s -j MASQUERADE%s", s.podsAll(), s.v("224.0.0.0/4", "ff00::/8"), one(g, "", " --random-fully"))
	s.rule("nat", "-A FLANNEL-POSTRTG ! -s %s -d %s -j MASQUERADE --random-fully", s.podsAll(), s.podsAll())
}

// firewall is what protects the node itself, and what sorts out INVALID packets.
func (g generator) firewall(s *sheet) {
	s.chain("filter", "FIREWALL")
	s.rule("filter", "-%s INPUT -j FIREWALL", one(g, "A", "I"))
	s.rule("filter", "-A FIREWALL -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	s.rule("filter", "-A FIREWALL -p tcp -m tcp --dport %d -j DROP", closedPort)
	s.rule("filter", "-A FIREWALL -p udp -m udp --dport %d -j DROP", closedPort)
	s.rule("filter", "-A FIREWALL -p tcp -m tcp --dport %d -j REJECT --reject-with tcp-reset", refusedPort)
	s.rule("filter", "-A FIREWALL -p udp -m multiport --dports %d,%d -j REJECT --reject-with %s", refusedPort, dockerPort, one(g, s.rejects()...))
	if g.chance(50) {
		s.rule("filter", "-A FIREWALL -m conntrack --ctstate INVALID -j %s", one(g, "DROP", "RETURN", "ACCEPT"))
	}
	if g.chance(30) {
		s.chain("mangle", "SANE")
		s.rule("mangle", "-A PREROUTING -j SANE")
		s.rule("mangle", "-A SANE -p tcp -m tcp ! --syn -m conntrack --ctstate NEW,INVALID -j %s", one(g, "DROP", "RETURN"))
	}
	if g.chance(30) {
		s.rule("raw", "-A PREROUTING -m rpfilter %s--invert -j DROP", one(g, "", "--loose ", "--validmark "))
	}
	if g.chance(30) {
		s.policy("filter", "INPUT", "DROP")
		s.rule("filter", "-A FIREWALL -p tcp -m multiport --dports 8080,5353,30000:32767 -j ACCEPT")
		s.rule("filter", "-A FIREWALL -p udp -m multiport --dports 8080,5353 -j ACCEPT")
	}
}

// rejects are the kinds of refusal of the family, for every protocol.
func (s *sheet) rejects() []string {
	if s.family == netfilter.IPv6 {
		return []string{"icmp6-port-unreachable", "icmp6-adm-prohibited", "icmp6-no-route", "icmp6-addr-unreachable"}
	}
	return []string{"icmp-port-unreachable", "icmp-admin-prohibited", "icmp-host-unreachable", "icmp-net-prohibited", "icmp-host-prohibited"}
}

// marks are rules in mangle that set, toggle and clear bits, the proxy's own bit
// among them, and rules that go by them.
func (g generator) marks(s *sheet) {
	s.chain("mangle", "MARKS")
	s.rule("mangle", "-A PREROUTING -j MARKS")
	s.rule("mangle", "-A OUTPUT -j MARKS")
	for range 2 + g.IntN(4) {
		which := one(g, "-p tcp", "-p udp", "-s "+s.client(), "-s "+s.pod(1+g.IntN(5)), "-d "+s.v("10.96.0.0/16", "fd00:96::/112"), "-m addrtype --dst-type LOCAL", "-m statistic --mode random --probability 0.3")
		s.rule("mangle", "-A MARKS %s -j MARK %s", which, g.markOp())
	}
	if g.chance(60) {
		s.rule("mangle", "-A MARKS -m mark ! --mark 0x0/0xff -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff")
		s.rule("mangle", "-A FORWARD -m connmark ! --mark 0x0/0xff -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff")
	}
	if g.chance(40) {
		s.rule("mangle", "-A POSTROUTING -m mark --mark 0x%x/0x%x", 1<<g.IntN(6), 1<<g.IntN(6)|0x10)
	}
	if g.chance(30) {
		s.rule("filter", "-A FORWARD -m mark --mark 0x10/0x10 -j %s", one(g, "DROP", "ACCEPT", "REJECT"))
	}
}

// markOp draws how a mark changes; 0x20 is the bit that routing goes by.
func (g generator) markOp() string {
	bit := one(g, 0x1, 0x2, 0x10, 0x20, 0x40, 0x4000, 0x8000, 0x100000)
	return one(g,
		fmt.Sprintf("--set-mark 0x%x", bit), fmt.Sprintf("--or-mark 0x%x", bit), fmt.Sprintf("--xor-mark 0x%x", bit), fmt.Sprintf("--and-mark 0x%x", ^uint32(bit)),
		fmt.Sprintf("--set-xmark 0x%x/0x%x", bit|0x3, bit), fmt.Sprintf("--set-xmark 0x%x/0x%x", bit, bit|0xf), fmt.Sprintf("--set-mark 0x%x/0x%x", bit, 0xff))
}

// untracked takes packets out of connection tracking, as a DNS cache on the node does.
func (g generator) untracked(s *sheet) {
	proto := one(g, "udp", "tcp")
	target := one(g, "CT --notrack", "NOTRACK")
	which := one(g, fmt.Sprintf("-p %s -m %s --dport %d", proto, proto, one(g, 53, 443, untracked)), "-d "+s.v("10.96.1.8/29", "fd00:96::104/126"), "-s "+s.pod(1+g.IntN(5))+" -p "+proto)
	s.rule("raw", "-A PREROUTING %s -j %s", which, target)
	s.rule("raw", "-A OUTPUT %s -j %s", which, target)
	if g.chance(50) {
		s.rule("filter", "-I FORWARD -m conntrack --ctstate UNTRACKED -j ACCEPT")
	}
}
