package trace_test

import (
	"strings"
	"testing"

	"portolan/netfilter/detect"
	"portolan/trace"
)

const ipvsHost = `interfaces: [{name: eth0, addresses: [192.0.2.1/24]}, {name: cni0, kind: bridge, addresses: [10.244.0.1/24]}, {name: kube-ipvs0, addresses: [10.96.0.10/32, 10.96.0.11/32]}]
routes: [{to: default, via: 192.0.2.254, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1", net.ipv4.vs.conntrack: "1", net.ipv4.conf.all.rp_filter: "0"}
`

// What IPVS does by scheduler, weight, persistence, way of forwarding and mark.
func TestIPVS(t *testing.T) {
	for _, tt := range []struct{ name, servers, flow, want string }{
		{"by weight", "-A -t 10.96.0.10:80 -s wrr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m -w 3\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n",
			"192.0.2.9 10.96.0.10:80 in=eth0", "1/4 forward 10.244.0.5:8080, 3/4 forward 10.244.0.4:8080"},
		{"weight 0 gets nothing new", "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m -w 0\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n",
			"192.0.2.9 10.96.0.10:80 in=eth0", "1 forward 10.244.0.5:8080"},
		{"nobody left", "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m -w 0\n", "192.0.2.9 10.96.0.10:80 in=eth0", "1 reject 10.96.0.10:80"},
		{"no real server", "-A -t 10.96.0.10:80 -s rr\n", "192.0.2.9 10.96.0.10:80 in=eth0", "1 reject 10.96.0.10:80"},
		{"persistence", "-A -t 10.96.0.10:80 -s rr -p 10800\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m -w 1\n",
			"192.0.2.9 10.96.0.10:80 in=eth0", "0 forward 10.244.0.4:8080, 1 forward 10.244.0.4:8080"},
		{"another port", "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m\n", "192.0.2.9 10.96.0.10:81 in=eth0", "1 input 10.96.0.10:81"},
		{"every port", "-A -t 10.96.0.10:0 -s rr -p 60\n-a -t 10.96.0.10:0 -r 10.244.0.4:8080 -m\n", "192.0.2.9 10.96.0.10:81 in=eth0", "0 forward 10.244.0.4:8080, 1 forward 10.244.0.4:8080"},
		{"a real server on the host", "-A -t 10.96.0.10:443 -s rr\n-a -t 10.96.0.10:443 -r 192.0.2.1:6443 -m\n", "192.0.2.9 10.96.0.10:443 in=eth0", "1 input 192.0.2.1:6443"},
		{"direct routing", "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 192.0.2.7:80 -g\n", "192.0.2.9 10.96.0.10:80 in=eth0", "1 forward 10.96.0.10:80"},
		{"by mark", "-A -f 7 -s rr\n-a -f 7 -r 10.244.0.4:8080 -m\n", "192.0.2.9 10.96.0.11:80 in=eth0 mark=7", "1 forward 10.244.0.4:8080"},
		{"no beginning", "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m\n", "192.0.2.9 10.96.0.10:80 in=eth0 ack", "1 input 10.96.0.10:80"},
	} {
		h := hostOf(t, detect.Options{}, ipvsHost, tt.servers, "*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n")
		equal(t, tt.name, strings.Join(ends(t, h, tt.flow), ", "), tt.want)
	}
}

// Whose virtual servers were not given is not known.
func TestIPVSUnknown(t *testing.T) {
	a := trace.New(hostOf(t, detect.Options{}, ipvsHost), trace.Options{}).Trace(flow(t, "192.0.2.9 10.96.0.10:80 in=eth0"))
	if a.Outcomes[0].Verdict != trace.Unknown || !strings.Contains(a.Outcomes[0].Reason, "virtual servers were not given") {
		t.Errorf("%+v", a.Outcomes[0])
	}
}

// A connection that is listed stays with its real server, also one of weight 0.
func TestIPVSKnownConnection(t *testing.T) {
	h := hostOf(t, detect.Options{}, ipvsHost,
		"-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m -w 0\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m -w 1\n",
		"tcp 6 86399 ESTABLISHED src=192.0.2.9 dst=10.96.0.10 sport=5000 dport=80 src=10.244.0.4 dst=10.244.0.1 sport=8080 dport=6000 [ASSURED]\n")
	o := only(t, h, "192.0.2.9:5000 10.96.0.10:80 in=eth0")
	if dst(o) != "10.244.0.4:8080" || o.Src.String() != "10.244.0.1" || hooks(o) != "prerouting input output postrouting" {
		t.Errorf("%s %s %s", dst(o), o.Src, hooks(o))
	}
	o = only(t, h, "10.244.0.4:8080 10.244.0.1:6000 in=cni0")
	if dst(o) != "192.0.2.9:5000" || o.Src.String() != "10.96.0.10" || hooks(o) != "prerouting forward postrouting" {
		t.Errorf("%s %s %s", dst(o), o.Src, hooks(o))
	}
}

// -m ipvs knows what IPVS has handled.
func TestIPVSMatch(t *testing.T) {
	h := hostOf(t, detect.Options{}, ipvsHost, "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m\n",
		"*nat\n:POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -m ipvs ! --ipvs -j ACCEPT\n-A POSTROUTING -m ipvs --ipvs -j MASQUERADE\nCOMMIT\n")
	if o := only(t, h, "192.0.2.9 10.96.0.10:80 in=eth0"); !o.Masquerade {
		t.Error(path(o, "nat"))
	}
	if o := only(t, h, "10.244.0.9 198.51.100.9:80 in=cni0"); o.Masquerade {
		t.Error(path(o, "nat"))
	}
}

// The next connection of a client goes where rules, or IPVS, remember it.
func TestTraceNext(t *testing.T) {
	for name, rules := range map[string]string{
		"recent": "*nat\n:PREROUTING ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n-A PREROUTING -m recent --rcheck --seconds 60 --name A --rsource -j A\n-A PREROUTING -m recent --rcheck --seconds 60 --name B --rsource -j B\n-A PREROUTING -m statistic --mode random --probability 0.5 -j A\n-A PREROUTING -j B\n" +
			"-A A -p tcp -m recent --set --name A --rsource -j DNAT --to-destination 10.244.0.4:8080\n-A B -p tcp -m recent --set --name B --rsource -j DNAT --to-destination 10.244.0.5:8080\nCOMMIT\n",
		"nft": "table ip x {\n\tset a {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n\tset b {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\t\ttimeout 1m\n\t}\n\tchain p {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\tip saddr @a goto ca\n\t\tip saddr @b goto cb\n\t\tnumgen random mod 2 vmap { 0 : goto ca, 1 : goto cb }\n\t}\n" +
			"\tchain ca {\n\t\tupdate @a { ip saddr }\n\t\tmeta l4proto tcp dnat to 10.244.0.4:8080\n\t}\n\tchain cb {\n\t\tupdate @b { ip saddr }\n\t\tmeta l4proto tcp dnat to 10.244.0.5:8080\n\t}\n}\n",
		"ipvs": "-A -t 10.96.0.10:80 -s rr -p 60\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m\n-a -t 10.96.0.10:80 -r 10.244.0.5:8080 -m\n",
	} {
		tr := trace.New(hostOf(t, detect.Options{}, ipvsHost, rules), trace.Options{})
		f := flow(t, "192.0.2.9 10.96.0.10:80 in=eth0")
		for _, first := range tr.Trace(f).Outcomes {
			if first.Share.Sign() == 0 {
				continue
			}
			if first.Share.RatString() != "1/2" {
				t.Errorf("%s: share %s", name, first.Share.RatString())
			}
			next := tr.TraceNext(f, &first)
			if dst(next.Outcomes[0]) != dst(first) || next.Outcomes[0].Share.RatString() != "1" {
				t.Errorf("%s: first %s, then %s with share %s", name, dst(first), dst(next.Outcomes[0]), next.Outcomes[0].Share.RatString())
			}
		}
	}
}

// What iptables has translated to the address of a virtual server goes on to a real
// one, and its answer comes from the address that the client called.
func TestIPVSBehindDNAT(t *testing.T) {
	h := hostOf(t, detect.Options{}, ipvsHost, "-A -t 10.96.0.10:80 -s rr\n-a -t 10.96.0.10:80 -r 10.244.0.4:8080 -m\n",
		"*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -d 198.51.100.1/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.96.0.10:80\nCOMMIT\n")
	o := trace.New(h, trace.Options{Reply: true}).Trace(flow(t, "10.244.0.9 198.51.100.1:80 in=cni0")).Outcomes[0]
	if r := o.Reply; dst(o) != "10.244.0.4:8080" || r == nil || r.Src.String() != "198.51.100.1" || r.SrcPort != 80 {
		t.Errorf("%s, reply %+v", dst(o), r)
	}
}

// A port that is not known matters only where a member has the address.
func TestSetWithoutThePort(t *testing.T) {
	h := hostOf(t, detect.Options{}, ipvsHost, "create A hash:ip,port family inet\nadd A 198.51.100.1,tcp:80\n",
		"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m set --match-set A dst,dst -j DROP\nCOMMIT\n")
	for text, certain := range map[string]bool{"192.0.2.9 10.244.0.4 in=eth0": true, "10.244.0.4 198.51.100.1 in=cni0": false} {
		if got := trace.New(h, trace.Options{}).Trace(flow(t, text)).Outcomes[0]; got.Certain != certain {
			t.Errorf("%s: certain %t: %s", text, got.Certain, got.Reason)
		}
	}
}
