package trace_test

import (
	"fmt"
	"math/big"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// scenario is one packet against rules.
type scenario struct {
	name, rules, host, flow string
	verdict                 trace.Verdict
	want                    string // in the outcome's summary: src -> dst, reason, path
}

const ipForward = "interfaces: [{name: eth0, addresses: [192.0.2.1/24]}, {name: eth1, addresses: [198.51.100.1/24]}, {name: br0, kind: bridge, addresses: [10.0.0.1/24]}]\nroutes: [{to: default, via: 192.0.2.254, dev: eth0}]\n"

const on = "sysctls: {net.ipv4.ip_forward: \"1\"}\n"

var scenarios = []scenario{
	{"ip_forward off", "", ipForward, "192.0.2.9 198.51.100.9:80", trace.Dropped, "does not forward"},
	{"default is off and said", "", ipForward, "192.0.2.9 198.51.100.9:80", trace.Dropped, "net.ipv4.ip_forward was not given: taken for the kernel's default, 0"},
	{"policy drop", "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "the policy of filter FORWARD is DROP"},
	{"return in a built-in chain gives the policy", "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -j RETURN\n-A FORWARD -j ACCEPT\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "policy"},
	{"goto does not come back", "*filter\n:A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A FORWARD -j DROP\n-A A -g B\n-A A -j ACCEPT\n-A B -p udp -j ACCEPT\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "rule 2 of filter FORWARD"},
	{"goto from a built-in chain ends in the policy", "*filter\n:B - [0:0]\n-A FORWARD -g B\n-A FORWARD -j DROP\n-A B -p udp -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Forwarded, ""},
	{"loop", "*filter\n:A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A A -j B\n-A B -j A\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Loop, "FORWARD -> A -> B -> A"},
	{"loop by goto", "*filter\n:A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A A -g B\n-A B -g A\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Loop, "circle"},
	{"reject", "*filter\n-A FORWARD -p tcp -j REJECT --reject-with tcp-reset\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Rejected, "tcp-reset"},
	{"reject by default", "*filter\n-A FORWARD -j REJECT\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Rejected, "icmp-port-unreachable"},
	{"notrack: no NAT, state UNTRACKED", "*raw\n-A PREROUTING -j CT --notrack\nCOMMIT\n*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:81\nCOMMIT\n*filter\n-A FORWARD -m conntrack --ctstate UNTRACKED -j ACCEPT\n-A FORWARD -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.7:80", trace.Forwarded, "-> 198.51.100.7:80"},
	{"in raw a packet counts as INVALID", "*raw\n-A PREROUTING -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.7:80", trace.Dropped, "raw PREROUTING"},
	{"invalid", "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:81\nCOMMIT\n*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.7:80 invalid", trace.Dropped, "rule 1 of filter FORWARD"},
	{"state DNAT", "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:81\nCOMMIT\n*filter\n-A FORWARD -m conntrack ! --ctstate DNAT -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.7:80", trace.Forwarded, "-> 198.51.100.9:81"},
	{"original destination", "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:81\nCOMMIT\n*filter\n-A FORWARD -m conntrack --ctorigdst 198.51.100.7 --ctorigdstport 80 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.7:80", trace.Dropped, "filter FORWARD"},
	{"an entry decides, nat is not asked", "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:81\nCOMMIT\n*filter\n-A FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT\n-A FORWARD -j DROP\nCOMMIT\n", ipForward + on + "\x00tcp 6 99 ESTABLISHED src=192.0.2.9 dst=198.51.100.7 sport=4000 dport=80 src=198.51.100.33 dst=192.0.2.1 sport=8080 dport=61000 [ASSURED]", "192.0.2.9:4000 198.51.100.7:80", trace.Forwarded, "192.0.2.1 -> 198.51.100.33:8080"},
	{"a reply is translated back", "", ipForward + on + "\x00tcp 6 99 ESTABLISHED src=192.0.2.9 dst=192.0.2.1 sport=4000 dport=80 src=198.51.100.33 dst=198.51.100.1 sport=8080 dport=61000 [ASSURED]", "198.51.100.33:8080 198.51.100.1:61000 in=eth1", trace.Forwarded, "192.0.2.1 -> 192.0.2.9:4000"},
	{"an entry made before the rule keeps the flow (U2b)", "*nat\n-A PREROUTING -p udp -j DNAT --to-destination 198.51.100.9:53\nCOMMIT\n", ipForward + on + "\x00udp 17 29 src=192.0.2.9 dst=198.51.100.7 sport=40002 dport=53 [UNREPLIED] src=198.51.100.7 dst=192.0.2.9 sport=53 dport=40002 mark=0", "192.0.2.9:40002 198.51.100.7:53 udp", trace.Forwarded, "-> 198.51.100.7:53"},
	{"martian loopback", "", ipForward + on, "192.0.2.9 127.0.0.1:80 in=eth0", trace.Dropped, "martian destination"},
	{"own address from outside", "", ipForward + on, "192.0.2.1 198.51.100.9:80 in=eth0", trace.Dropped, "the host's own address"},
	{"rp_filter strict", "", ipForward + "sysctls: {net.ipv4.ip_forward: \"1\", net.ipv4.conf.eth1.rp_filter: \"1\"}\n", "8.8.8.8 192.0.2.9:80 in=eth1", trace.Dropped, "rp_filter is 1"},
	{"rp_filter loose", "", ipForward + "sysctls: {net.ipv4.ip_forward: \"1\", net.ipv4.conf.all.rp_filter: \"2\"}\n", "8.8.8.8 192.0.2.9:80 in=eth1", trace.Forwarded, ""},
	{"to an address of the host", "*filter\n-A INPUT -i eth0 -p tcp --dport 22 -j DROP\nCOMMIT\n", ipForward, "8.8.8.8 198.51.100.1:22 in=eth0", trace.Dropped, "filter INPUT"},
	{"no route", "", "interfaces: [{name: eth0, addresses: [192.0.2.1/24]}]\n" + on, "192.0.2.1 8.8.8.8:80", trace.Dropped, "unreachable"},
	{"blackhole route", "", "interfaces: [{name: eth0, addresses: [192.0.2.1/24]}]\nroutes: [{to: 10.0.0.0/8, type: blackhole}]\n" + on, "192.0.2.9 10.1.1.1:80", trace.Dropped, "blackhole"},
	{"output interface before DNAT is seen by later OUTPUT chains", "*nat\n-A OUTPUT -p tcp -j DNAT --to-destination 198.51.100.9\nCOMMIT\n*filter\n-A OUTPUT -o eth1 -j DROP\n-A OUTPUT -o eth0 -j ACCEPT\nCOMMIT\n*mangle\n-A POSTROUTING -o eth0 -j DROP\nCOMMIT\n", ipForward, "192.0.2.1 8.8.8.8:80", trace.Output, "-> 198.51.100.9:80"},
	{"redirect local", "*nat\n-A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001\nCOMMIT\n", ipForward, "192.0.2.1 8.8.8.8:80", trace.Input, "-> 127.0.0.1:15001"},
	{"redirect arriving", "*nat\n-A PREROUTING -p tcp --dport 80 -j REDIRECT --to-ports 15001\nCOMMIT\n", ipForward, "192.0.2.9 8.8.8.8:80", trace.Input, "-> 192.0.2.1:15001"},
	{"netmap", "*nat\n-A PREROUTING -d 203.0.113.0/24 -j NETMAP --to 198.51.100.0/24\nCOMMIT\n", ipForward + on, "192.0.2.9 203.0.113.77:80", trace.Forwarded, "-> 198.51.100.77:80"},
	{"shifted port", "*nat\n-A PREROUTING -p tcp -j DNAT --to-destination 198.51.100.9:8000-8100/80\nCOMMIT\n", ipForward + on, "192.0.2.9 203.0.113.77:85", trace.Forwarded, "-> 198.51.100.9:8005"},
	{"SNAT with a port", "*nat\n-A POSTROUTING -j SNAT --to-source 203.0.113.5\nCOMMIT\n", ipForward + on, "198.51.100.9 192.0.2.9:80", trace.Forwarded, "203.0.113.5 -> 192.0.2.9:80"},
	{"connmark", "*mangle\n-A PREROUTING -j MARK --set-mark 0x5\n-A PREROUTING -j CONNMARK --save-mark\n-A PREROUTING -j MARK --set-mark 0x0\n-A PREROUTING -j CONNMARK --restore-mark\nCOMMIT\n*filter\n-A FORWARD -m mark --mark 0x5 -m connmark --mark 0x5 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "filter FORWARD"},
	{"xmark arithmetic", "*mangle\n-A PREROUTING -j MARK --set-xmark 0xff/0xf\n-A PREROUTING -j MARK --and-mark 0xf0\n-A PREROUTING -j MARK --or-mark 0x1\n-A PREROUTING -j MARK --xor-mark 0x3\n-A PREROUTING -m mark --mark 0xf2 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80 mark=0x30", trace.Forwarded, ""},
	{"xmark arithmetic from 0", "*mangle\n-A PREROUTING -j MARK --set-xmark 0xff/0xf\n-A PREROUTING -j MARK --and-mark 0xf0\n-A PREROUTING -j MARK --or-mark 0x1\n-A PREROUTING -j MARK --xor-mark 0x3\n-A PREROUTING -m mark --mark 0xf2 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "mangle PREROUTING"},
	{"both variants run", "# Generated by iptables-save v1.8.9 (nf_tables)\n*filter\n-A FORWARD -p tcp -j ACCEPT\nCOMMIT\n\x00# Generated by iptables-save v1.8.9\n*filter\n-A FORWARD -p tcp -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "rule 1 of filter FORWARD"},
	{"limit is assumed to allow", "*filter\n-A FORWARD -m limit --limit 3/hour -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "what limit counts is not exceeded"},
	{"connlimit is assumed not exceeded", "*filter\n-A FORWARD -p tcp -m connlimit --connlimit-above 3 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Forwarded, "connlimit"},
	{"owner of what is not local", "*filter\n-A FORWARD -m owner --uid-owner 0 -j DROP\n-A FORWARD -m owner ! --uid-owner 0 -j REJECT\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Rejected, "rule 2"},
	{"addrtype", "*filter\n-A INPUT -m addrtype --dst-type BROADCAST -j ACCEPT\n-A INPUT -m addrtype ! --src-type LOCAL --dst-type LOCAL --limit-iface-in -j DROP\nCOMMIT\n", ipForward, "192.0.2.9 192.0.2.1:80", trace.Dropped, "rule 2"},
	{"limit-iface-in", "*filter\n-A INPUT -m addrtype --dst-type LOCAL --limit-iface-in -j DROP\nCOMMIT\n", ipForward, "192.0.2.9 198.51.100.1:80", trace.Input, ""},
	{"u32", "*filter\n-A FORWARD -m u32 --u32 \"6&0xFF=6 && 0>>22&0x3C@0&0xFFFF=80\" -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "rule 1"},
	{"u32 does not match", "*filter\n-A FORWARD -m u32 --u32 \"6&0xFF=6 && 0>>22&0x3C@0&0xFFFF=81:90\" -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Forwarded, ""},
	{"bpf: ip proto 6", "*filter\n-A FORWARD -m bpf --bytecode \"4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0\" -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "rule 1"},
	{"bpf: not udp", "*filter\n-A FORWARD -m bpf --bytecode \"4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0\" -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80 udp", trace.Forwarded, ""},
	{"physdev of a bridged frame", "*filter\n-A FORWARD -m physdev --physdev-is-bridged -j DROP\nCOMMIT\n", ipForward + on, "10.0.0.7 10.0.0.8:80", trace.Dropped, "rule 1"},
	{"physdev of a routed one", "*filter\n-A FORWARD -m physdev --physdev-is-bridged -j DROP\nCOMMIT\n", ipForward + on, "10.0.0.7 198.51.100.9:80", trace.Forwarded, ""},
	{"bridged, no rule sees it", "*filter\n-A FORWARD -j DROP\nCOMMIT\n", ipForward + "sysctls: {net.bridge.bridge-nf-call-iptables: \"0\"}\n", "10.0.0.7 10.0.0.8:80", trace.Forwarded, "no rule sees it"},
	{"ipv6", "# Generated by ip6tables-save v1.8.9\n*nat\n-A PREROUTING -d fd00:96::1/128 -p tcp -m tcp --dport 80 -j DNAT --to-destination [fd00:10::4]:8080\n-A POSTROUTING -j MASQUERADE\nCOMMIT\n", "interfaces: [{name: eth0, addresses: [\"fd00:1::1/64\"]}, {name: cni0, addresses: [\"fd00:10::1/64\"]}]\nroutes: [{to: default, via: \"fd00:1::fe\", dev: eth0}]\nsysctls: {net.ipv6.conf.all.forwarding: 1}\n", "fd00:1::9 [fd00:96::1]:80", trace.Forwarded, "fd00:10::1 -> [fd00:10::4]:8080"},
	{"iprange, multiport, set", "*filter\n-A FORWARD -p tcp -m iprange --src-range 192.0.2.5-192.0.2.15 -m multiport --dports 443,8000:8100 -m set --match-set CLIENTS src -j DROP\nCOMMIT\n", ipForward + on + "\x00create CLIENTS hash:net family inet\nadd CLIENTS 192.0.2.8/30\n", "192.0.2.9 198.51.100.9:8080", trace.Dropped, "rule 1"},
	{"TPROXY sends to the local table", "*mangle\n-A PREROUTING -p tcp -j TPROXY --on-port 15001 --on-ip 127.0.0.1 --tproxy-mark 0x1/0x1\n-A PREROUTING -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:8080", trace.Forwarded, ""},
	{"ttl", "*mangle\n-A PREROUTING -m ttl --ttl-lt 65 -j ACCEPT\n-A PREROUTING -j DROP\n-A FORWARD -m ttl --ttl-eq 63 -j DROP\nCOMMIT\n", ipForward + on, "192.0.2.9 198.51.100.9:80", trace.Dropped, "mangle FORWARD"},
}

// One packet each, with the one thing that decides.
func TestScenarios(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			texts := append(strings.Split(s.rules, "\x00"), strings.Split(s.host, "\x00")...)
			a := trace.New(hostOf(t, detect.Options{}, texts...), trace.Options{Reply: true}).Trace(flow(t, s.flow))
			o := a.Outcomes[0]
			summary := fmt.Sprintf("%s: %s -> %s; %s; %s; %v", o.Verdict, o.Src, dst(o), o.Reason, path(o, "nat"), a.Assumptions)
			if len(a.Outcomes) != 1 || !o.Certain || o.Verdict != s.verdict || !strings.Contains(summary, s.want) {
				t.Errorf("%d outcomes, certain %t, want %s with %q, got %s", len(a.Outcomes), o.Certain, s.verdict, s.want, summary)
			}
		})
	}
}

// What is not known is followed both ways and says which rule is the reason.
func TestUncertain(t *testing.T) {
	for rules, want := range map[string]string{
		"-A FORWARD -m mystery --deep -j DROP":                                            "1/2 drop 1/2 forward | filter FORWARD rule 1: the match -m mystery --deep is not understood",
		"-A FORWARD -j FROBNICATE --hard":                                                 "1/2 forward 1/2 unknown | filter FORWARD rule 1: the target FROBNICATE",
		"-A FORWARD -m set --match-set NOWHERE src -j DROP":                               "1/2 drop 1/2 forward | filter FORWARD rule 1: the content of set NOWHERE was not given",
		"-A FORWARD -m time --timestart 08:00 -j DROP":                                    "1/2 drop 1/2 forward | filter FORWARD rule 1: it depends on the time of day",
		"-A FORWARD -p tcp --sport 40000 -j DROP":                                         "1/2 drop 1/2 forward | filter FORWARD rule 1: the source port was not given",
		"-A FORWARD -m mac --mac-source 02:00:00:00:00:01 -j DROP":                        "1/2 drop 1/2 forward | filter FORWARD rule 1: the MAC address of 192.0.2.9 is not known",
		"-A FORWARD -p tcp -m length --length 0:99 -j DROP":                               "1/2 drop 1/2 forward | filter FORWARD rule 1: the packet's length is not known",
		"-A FORWARD -m bpf --object-pinned /x -j DROP":                                    "1/2 drop 1/2 forward | filter FORWARD rule 1: a pinned BPF program",
		"-A FORWARD -j NFQUEUE --queue-num 1 --queue-bypass":                              "1/2 forward 1/2 unknown | rule 1 of FORWARD: whether a program listens",
		"-A FORWARD -p udp -m mystery -j DROP":                                            "1 forward | ",
		"-A FORWARD -m mystery -p udp -j DROP":                                            "1 forward | ",
		"-A FORWARD -m mystery -j MARK --set-mark 1\n-A FORWARD -m mark --mark 1 -j DROP": "1/2 drop 1/2 forward | filter FORWARD rule 1",
	} {
		h := hostOf(t, detect.Options{}, "*filter\n"+rules+"\nCOMMIT\n", ipForward+on)
		a := trace.New(h, trace.Options{}).Trace(flow(t, "192.0.2.9 198.51.100.9:80"))
		var parts []string
		doubt := ""
		for _, v := range []trace.Verdict{trace.Dropped, trace.Forwarded, trace.Unknown} {
			for _, o := range a.Outcomes {
				if o.Verdict == v {
					parts = append(parts, o.Share.RatString()+" "+v.String())
					if len(o.Doubts) > 0 {
						doubt = o.Doubts[0]
					}
				}
			}
		}
		if got := strings.Join(parts, " ") + " | " + doubt; !strings.HasPrefix(got, want) {
			t.Errorf("%s:\n got %s\nwant %s", rules, got, want)
		}
	}
}

// ClientIP affinity: a new client is balanced by chance; a remembered one goes
// where it was, in branches without share that name their condition.
func TestAffinity(t *testing.T) {
	rules := `*nat
:SVC - [0:0]
:SEP1 - [0:0]
:SEP2 - [0:0]
-A PREROUTING -d 203.0.113.1/32 -j SVC
-A SVC -m recent --rcheck --seconds 10800 --reap --name SEP1 --mask 255.255.255.255 --rsource -j SEP1
-A SVC -m recent --rcheck --seconds 10800 --reap --name SEP2 --mask 255.255.255.255 --rsource -j SEP2
-A SVC -m statistic --mode random --probability 0.5 -j SEP1
-A SVC -j SEP2
-A SEP1 -p tcp -m recent --set --name SEP1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 198.51.100.11:80
-A SEP2 -p tcp -m recent --set --name SEP2 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 198.51.100.12:80
COMMIT
`
	a := trace.New(hostOf(t, detect.Options{}, rules, ipForward+on), trace.Options{}).Trace(flow(t, "192.0.2.9 203.0.113.1:80"))
	var got []string
	for _, o := range a.Outcomes {
		got = append(got, o.Share.RatString()+" "+dst(o)+" "+strings.Join(o.Conditions, ","))
	}
	equal(t, "outcomes", strings.Join(got, "; "), "1/2 198.51.100.11:80 ; 1/2 198.51.100.12:80 ; 0 198.51.100.11:80 the list SEP1 remembers 192.0.2.9 from the last 10800 s; 0 198.51.100.12:80 the list SEP2 remembers 192.0.2.9 from the last 10800 s")
	if !a.Certain() {
		t.Error("the outcomes that have a share are certain")
	}
}

// nth and a multipath route are shares too.
func TestOtherShares(t *testing.T) {
	h := hostOf(t, detect.Options{}, "*filter\n-A FORWARD -m statistic --mode nth --every 3 --packet 0 -j DROP\n-A FORWARD -m statistic --mode random ! --probability 0.25 -j REJECT\nCOMMIT\n", ipForward+on)
	equal(t, "nth, then random", strings.Join(ends(t, h, "192.0.2.9 198.51.100.9:80"), ", "), "1/2 reject 198.51.100.9:80, 1/3 drop 198.51.100.9:80, 1/6 forward 198.51.100.9:80")
	h = hostOf(t, detect.Options{}, "", ipForward+on)
	h.Routes = append(h.Routes, netfilter.Route{To: mustPrefix("203.0.113.0/24"), Hops: []netfilter.NextHop{{Dev: "eth0", Weight: 1}, {Dev: "eth1", Weight: 3}}})
	for _, o := range trace.New(h, trace.Options{}).Trace(flow(t, "10.0.0.7 203.0.113.9:80")).Outcomes {
		want := map[string]string{"eth0": "1/4", "eth1": "3/4"}[o.Hops[2].Out]
		if o.Share.RatString() != want {
			t.Errorf("%s has share %s", o.Hops[2].Out, o.Share.RatString())
		}
	}
}

// U7: with bridge-nf-call-iptables=0 the answer of a same-bridge endpoint is
// not translated back; with 1 it is.
func TestU7BridgeReply(t *testing.T) {
	h := node004(t)
	o := only(t, h, "10.244.0.9 10.106.224.38:80")
	if o.Reply == nil || !o.Reply.Passes || o.Reply.Src.String() != "10.106.224.38" || o.Reply.Dst.String() != "10.244.0.9" {
		t.Errorf("with 1: %+v", o.Reply)
	}
	h = node004(t)
	h.Sysctls["net.bridge.bridge-nf-call-iptables"] = "0"
	o = only(t, h, "10.244.0.9 10.106.224.38:80")
	if o.Reply.Passes || !strings.Contains(o.Reply.Reason, "not translated back") || o.Hops[1].TTL != 63 {
		t.Errorf("with 0: %+v", o.Reply)
	}
}

// The answer of a masqueraded NodePort connection comes back from the node's
// address, through the rule for established connections.
func TestReply(t *testing.T) {
	o := only(t, node004(t), "172.22.7.200:42678 172.22.7.89:31532")
	r := o.Reply
	if r.Verdict != trace.Forwarded || r.Src.String() != "172.22.7.89" || r.SrcPort != 31532 || r.Dst.String() != "172.22.7.200" || r.DstPort != 42678 {
		t.Errorf("%+v", r)
	}
	var got []string
	for _, s := range r.Steps {
		if s.Table == "filter" {
			got = append(got, fmt.Sprintf("%s:%d", s.Chain, s.Rule))
		}
	}
	equal(t, "filter", strings.Join(got, " "), "FORWARD:2 KUBE-FORWARD:3")
}

// Rules alone: what is not known is said, and what the rules decide by
// addresses of the host branches.
func TestRulesAlone(t *testing.T) {
	h := load(t, detect.Options{}, shared+"dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt")
	o := only(t, h, "10.244.0.9 10.106.224.38:80 in=cni0")
	if o.Verdict != trace.Forwarded || dst(o) != "10.244.0.4:80" {
		t.Errorf("%s %s", o.Verdict, dst(o))
	}
	a := trace.New(h, trace.Options{}).Trace(flow(t, "172.22.7.200 172.22.7.89:31532 in=eth0"))
	if a.Certain() || len(a.Outcomes) < 2 || !strings.Contains(a.Outcomes[0].Doubts[0], "whether 172.22.7.89 is an address of the host is not known") {
		t.Errorf("%+v", a.Outcomes[0].Doubts)
	}
}

// sumsToOne checks what every answer promises.
func sumsToOne(t testing.TB, a trace.Answer) {
	t.Helper()
	sum := new(big.Rat)
	for _, o := range a.Outcomes {
		sum.Add(sum, o.Share)
	}
	if sum.Cmp(big.NewRat(1, 1)) != 0 {
		t.Fatalf("shares sum to %s", sum)
	}
}

// FuzzTrace: any text that parses can be walked, in bounded time, and the
// shares sum to 1.
func FuzzTrace(f *testing.F) {
	for _, s := range scenarios {
		f.Add(s.rules, s.host)
	}
	f.Fuzz(func(t *testing.T, rules, host string) {
		h, err := detect.Host(detect.Options{}, detect.Text{Name: "rules", Text: rules}, detect.Text{Name: "host", Text: host})
		if err != nil {
			return
		}
		tr := trace.New(h, trace.Options{Reply: true, MaxBranches: 64})
		for _, fl := range []string{"192.0.2.9 198.51.100.9:80", "192.0.2.1 203.0.113.1:53 udp local", "10.0.0.7 10.0.0.8 icmp in=br0", "fd00:1::9 [fd00:96::1]:80"} {
			sumsToOne(t, tr.Trace(flow(t, fl)))
		}
	})
}
