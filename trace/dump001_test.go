package trace_test

import (
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

const host001 = `interfaces: [{name: eth0, addresses: [192.168.1.10/24]}, {name: cni0, kind: bridge, addresses: [10.244.0.1/24]}]
routes: [{to: default, via: 192.168.1.1, dev: eth0}, {to: 10.244.1.0/24, via: 192.168.1.11, dev: eth0}, {to: 10.244.2.0/24, via: 192.168.1.12, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`

// The chains that the snippets of D001 and D003 leave out.
const masqChains = `*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE
:KUBE-SVC-C3VEVZBK3X2BH5IZ - [0:0]
:KUBE-NODEPORTS - [0:0]
`

// rules001 is the dump with its INPUT line in filter and the rest in nat.
func rules001(t testing.TB) *netfilter.Host {
	t.Helper()
	b, err := os.ReadFile(shared + "dumps/001-rules-filter-and-nat.txt")
	if err != nil {
		t.Fatal(err)
	}
	var nat, filter []string
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if strings.HasPrefix(line, "-A INPUT ") {
			filter = append(filter, line)
		} else {
			nat = append(nat, line)
		}
	}
	return hostOf(t, detect.Options{}, masqChains+strings.Join(nat, "\n")+"\nCOMMIT\n*filter\n:KUBE-NODEPORTS - [0:0]\n"+strings.Join(filter, "\n")+"\nCOMMIT\n", host001)
}

// Chains of one name in two tables are two chains.
func TestR94R111ChainsByTable(t *testing.T) {
	h := rules001(t)
	nat, filter := h.Table(netfilter.IPv4, 0, "nat").Chain("KUBE-NODEPORTS"), h.Table(netfilter.IPv4, 0, "filter").Chain("KUBE-NODEPORTS")
	if nat == filter || len(nat.Rules) != 1 || len(filter.Rules) != 0 {
		t.Errorf("nat %d rules, filter %d", len(nat.Rules), len(filter.Rules))
	}
	o := only(t, h, "203.0.113.9 192.168.1.10:22 in=eth0")
	equal(t, "filter", path(o, "filter"), "INPUT:1")
	equal(t, "nat", path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:3")
}

// Which table runs at which hook, and in which order.
func TestR95R96R97R98R99Order(t *testing.T) {
	var rules strings.Builder
	for _, table := range netfilter.TableNames {
		rules.WriteString("*" + table + "\n")
		for _, h := range netfilter.TableHooks(table) {
			rules.WriteString("-A " + h.ChainName() + " -j LOG\n")
		}
		rules.WriteString("COMMIT\n")
	}
	h := hostOf(t, detect.Options{}, rules.String(), plainHost)
	order := func(f string) string {
		var out []string
		for _, s := range only(t, h, f).Steps {
			if s.Action != trace.ActPolicy {
				out = append(out, s.Table+"/"+s.Hook.String())
			}
		}
		return strings.Join(out, " ")
	}
	equal(t, "receive", order("203.0.113.9 192.0.2.1:22 in=eth0"), "raw/prerouting mangle/prerouting nat/prerouting mangle/input filter/input security/input nat/input")
	equal(t, "forward", order("203.0.113.9 198.51.100.7:22 in=eth0"), "raw/prerouting mangle/prerouting nat/prerouting mangle/forward filter/forward security/forward mangle/postrouting nat/postrouting")
	equal(t, "send", order("192.0.2.1 203.0.113.9:22"), "raw/output mangle/output nat/output filter/output security/output mangle/postrouting nat/postrouting")
	if p := netfilter.Priority("raw", netfilter.Prerouting, netfilter.NFT); p != -300 {
		t.Errorf("raw has priority %d", p)
	}
}

// Receive, forward and send are chains 1 2, 1 3 5 and 4 5.
func TestR100Scenarios(t *testing.T) { TestR4R5R6Ways(t) }

// The words of a match.
func TestR101Matches(t *testing.T) {
	h := hostOf(t, detect.Options{}, `*filter
-A FORWARD -s 203.0.113.0/24 -d 198.51.100.0/24 -p tcp -i eth0 -o eth1 --sport 1000:2000 --dport 80 -j DROP
-6 -A FORWARD -j DROP
-4 -A FORWARD -p udp -j DROP
-A FORWARD -p icmp -j DROP
COMMIT
`, plainHost)
	for f, want := range map[string]trace.Verdict{
		"203.0.113.9:1500 198.51.100.7:80 in=eth0":     trace.Dropped,
		"203.0.113.9:3000 198.51.100.7:80 in=eth0":     trace.Forwarded,
		"203.0.113.9:1500 198.51.100.7:81 in=eth0":     trace.Forwarded,
		"203.0.113.9:1500 198.51.100.7:80 udp in=eth0": trace.Dropped,
		"203.0.114.9:1500 198.51.100.7:80 in=eth0":     trace.Forwarded,
		"203.0.113.9 198.51.100.7 icmp in=eth0":        trace.Dropped,
	} {
		if o := only(t, h, f); o.Verdict != want {
			t.Errorf("%s: %s (%s)", f, o.Verdict, o.Reason)
		}
	}
}

// The commands, applied one after another.
func TestR102Commands(t *testing.T) {
	h := hostOf(t, detect.Options{}, `iptables -N TEST
iptables -A INPUT -p tcp --dport 1 -j ACCEPT
iptables -A INPUT -p tcp --dport 2 -j ACCEPT
iptables -I INPUT -p tcp --dport 3 -j ACCEPT
iptables -I INPUT 2 -p tcp --dport 4 -j ACCEPT
iptables -D INPUT -p tcp --dport 1 -j ACCEPT
iptables -R INPUT 3 -p tcp --dport 5 -j TEST
iptables -C INPUT -p tcp --dport 5 -j TEST
iptables -L INPUT
iptables -P INPUT DROP
iptables -A OUTPUT -j DROP
iptables -F OUTPUT
`)
	c := h.Table(netfilter.IPv4, 0, "filter").Chain("INPUT")
	var got []string
	for _, r := range c.Rules {
		got = append(got, r.Text)
	}
	equal(t, "INPUT", strings.Join(got, "|"), "-A INPUT -p tcp --dport 3 -j ACCEPT|-A INPUT -p tcp --dport 4 -j ACCEPT|-A INPUT -p tcp --dport 5 -j TEST")
	if c.Policy != netfilter.PolicyDrop || len(h.Table(netfilter.IPv4, 0, "filter").Chain("OUTPUT").Rules) != 0 {
		t.Error("-P or -F")
	}
}

// The examples; -I puts a rule on top, so the ssh example as written
// drops the client it means to allow.
func TestR103CLIExamples(t *testing.T) {
	b, err := os.ReadFile(shared + "dumps/001-cli-examples.txt")
	if err != nil {
		t.Fatal(err)
	}
	h := hostOf(t, detect.Options{}, string(b), `interfaces: [{name: eth0, addresses: [10.0.0.1/24]}, {name: br0, kind: bridge, addresses: [192.168.0.1/24]}]
routes: [{to: default, via: 10.0.0.254, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`)
	ssh := only(t, h, "1.2.3.4 10.0.0.1:22 in=eth0")
	if ssh.Verdict != trace.Dropped || path(ssh, "filter") != "INPUT:1" {
		t.Errorf("ssh: %s %s", ssh.Verdict, path(ssh, "filter"))
	}
	if o := only(t, h, "121.9.9.9 10.0.0.1:443 in=eth0"); o.Verdict != trace.Dropped {
		t.Errorf("banned: %s", o.Verdict)
	}
	if o := only(t, h, "8.8.8.8 10.0.0.1:8088 in=eth0"); dst(o) != "192.168.0.2:80" {
		t.Errorf("port DNAT: %s", dst(o))
	}
	if o := only(t, h, "192.168.0.7 10.0.0.1:8088 in=br0"); o.DNAT {
		t.Error("what comes from br0 is not rewritten")
	}
	if o := only(t, h, "192.168.0.7 8.8.8.8:53 udp in=br0"); o.Src.String() != "10.0.0.1" {
		t.Errorf("masquerade: %s", o.Src)
	}
}

// The first rule of KUBE-SVC marks sources outside the pod range,
// KUBE-SEP marks its own endpoint and rewrites.
func TestR109R110Chains(t *testing.T) {
	h := rules001(t)
	for _, o := range trace.New(h, trace.Options{}).Trace(flow(t, "192.168.1.99 10.107.38.142:80 in=eth0")).Outcomes {
		if !strings.Contains(path(o, "nat"), "KUBE-SVC-GM62ZXCOIF6ZCRWU:1 KUBE-MARK-MASQ:1 KUBE-SVC-GM62ZXCOIF6ZCRWU:") || !o.Masquerade {
			t.Error(path(o, "nat"))
		}
	}
	for _, o := range trace.New(h, trace.Options{}).Trace(flow(t, "10.244.2.8 10.107.38.142:80 in=eth0")).Outcomes {
		if self := o.Dst.String() == "10.244.2.8"; o.Masquerade != self {
			t.Errorf("to %s: masquerade %t", o.Dst, o.Masquerade)
		}
	}
}

// The shares of three endpoints are exact thirds although the dump says
// 0.33333333349.
func TestR106Thirds(t *testing.T) {
	equal(t, "shares", strings.Join(ends(t, rules001(t), "10.244.0.9 10.107.38.142:80 in=cni0"), ", "), "1/3 forward 10.244.1.7:80, 1/3 forward 10.244.2.8:80, 1/3 forward 10.244.2.9:80")
}

// NodePort: KUBE-NODEPORTS, KUBE-EXT, KUBE-MARK-MASQ and back, KUBE-SVC.
func TestR112NodePortWay(t *testing.T) {
	o := only(t, rules001(t), "203.0.113.9 192.168.1.10:32054 in=eth0")
	equal(t, "nat", path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:3 KUBE-NODEPORTS:1 KUBE-EXT-C3VEVZBK3X2BH5IZ:1 KUBE-MARK-MASQ:1 KUBE-EXT-C3VEVZBK3X2BH5IZ:2")
}
