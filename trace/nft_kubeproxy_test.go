package trace_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// nftNode is the node of the nft fixtures: pods 10.244.0.0/24 on the bridge
// cni0, those of another node behind eth0.
const nftNode = `interfaces: [{name: eth0, addresses: [172.22.7.89/20, "fd00:1::89/64"]}, {name: cni0, kind: bridge, addresses: [10.244.0.1/24, "fd00:10::1/48"]}]
routes: [{to: default, via: 172.22.15.253, dev: eth0}, {to: 10.244.1.0/24, via: 172.22.7.90, dev: eth0}, {to: default, via: "fd00:1::1", dev: eth0}, {to: "fd00:10:1::/48", via: "fd00:1::2", dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1", net.ipv6.conf.all.forwarding: "1"}
`

func nftFile(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("../testdata/nft/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// outcomes writes all that can happen to a packet, and the way of the first
// through one table: the chains without what kube-proxy puts behind their
// hashes, with the numbers of rules.
func outcomes(t testing.TB, h *netfilter.Host, table, f string) (ends, way string) {
	t.Helper()
	a := trace.New(h, trace.Options{}).Trace(flow(t, f))
	sumsToOne(t, a)
	var all []string
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		s := fmt.Sprintf("%s %s %s -> %s", o.Share.RatString(), o.Verdict, o.Src, strings.TrimSpace(dst(*o)))
		if o.Service != "" {
			s += " of " + o.Service
		}
		if !o.Certain {
			s += "?"
		}
		all = append(all, s)
	}
	return strings.Join(all, "; "), short(path(a.Outcomes[0], table))
}

// short cuts the names behind kube-proxy's hashes.
func short(way string) string {
	words := strings.Fields(way)
	for i, w := range words {
		if at := strings.Index(w, "-default/"); at > 0 {
			words[i] = w[:strings.LastIndexByte(w[:at], '-')] + w[strings.LastIndexByte(w, ':'):]
		}
	}
	return strings.Join(words, " ")
}

// Sections C.4 to C.8 of the behaviour of kube-proxy in nftables mode, and
// what else its tables decide.
var kubeProxy = []struct{ name, flow, ends, way string }{
	{"C.4: NodePort from outside", "172.22.7.200:40000 172.22.7.89:30080",
		"1/2 forward 10.244.0.1 -> 10.244.0.4:8080 of default/web:http; 1/2 forward 172.22.7.89 -> 10.244.1.7:8080 of default/web:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:3 external:1 external:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1 masquerading:1"},
	{"C.5: a port of a ClusterIP that does not exist", "10.244.0.9 10.96.0.10:81", "1 reject 10.244.0.9 -> 10.96.0.10:81",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 filter-forward:1 filter-forward:2 cluster-ips-check:1"},
	{"C.5 from the node", "172.22.7.89 10.96.0.10:81", "1 reject 172.22.7.89 -> 10.96.0.10:81",
		"filter-output-pre-dnat:1 nat-output:1 services:1 filter-output:1 filter-output:2 cluster-ips-check:1"},
	{"C.5: a ClusterIP that is nobody's", "10.244.0.9 10.96.0.99:80", "1 drop 10.244.0.9 -> 10.96.0.99:80", "filter-prerouting-pre-dnat:1 nat-prerouting:1 filter-forward:1 filter-forward:2 cluster-ips-check:2"},
	{"C.6: policy Local without a local endpoint, from outside", "198.51.100.5 203.0.113.10:80 in=eth0", "1 drop 198.51.100.5 -> 203.0.113.10:80 of default/local:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 filter-forward:1 service-endpoints-check:1"},
	{"C.6 from a pod", "10.244.0.9 203.0.113.10:80", "1 forward 10.244.0.9 -> 10.244.1.7:8080 of default/local:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 external:1 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1"},
	{"C.6 from the node", "172.22.7.89 203.0.113.10:80", "1 output 172.22.7.89 -> 10.244.1.7:8080 of default/local:http",
		"filter-output-pre-dnat:1 nat-output:1 services:2 external:2 external:3 service:1 filter-output:1 filter-output:2 nat-postrouting:1 masquerading:1"},
	{"C.6, its NodePort from outside", "172.22.7.200 172.22.7.89:30081", "1 drop 172.22.7.200 -> 172.22.7.89:30081 of default/local:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:3 filter-input:1 nodeport-endpoints-check:1"},
	{"policy Local with a local endpoint, from outside", "198.51.100.5 203.0.113.16:80 in=eth0", "1 forward 198.51.100.5 -> 10.244.0.9:8080 of default/here:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 external:4 local:1 filter-forward:1 filter-forward:2 nat-postrouting:1"},
	{"C.7: source ranges, a client outside of them", "198.51.100.200 203.0.113.20:443 in=eth0", "1 drop 198.51.100.200 -> 203.0.113.20:443 of default/guarded:https",
		"filter-prerouting-pre-dnat:1 firewall-check:1 firewall:1"},
	{"C.7: a client within", "203.0.113.7 203.0.113.20:443 in=eth0", "1 forward 10.244.0.1 -> 10.244.0.4:8443 of default/guarded:https",
		"filter-prerouting-pre-dnat:1 firewall-check:1 nat-prerouting:1 services:2 external:1 external:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1 masquerading:1"},
	{"C.7: a pod", "10.244.0.9 203.0.113.20:443", "1 drop 10.244.0.9 -> 203.0.113.20:443 of default/guarded:https", "filter-prerouting-pre-dnat:1 firewall-check:1 firewall:1"},
	{"C.7: the node", "172.22.7.89 203.0.113.20:443", "1 drop 172.22.7.89 -> 203.0.113.20:443 of default/guarded:https", "filter-output-pre-dnat:1 firewall-check:1 firewall:1"},
	{"C.7: NodePorts have no ranges", "172.22.7.200 172.22.7.89:30082", "1 forward 10.244.0.1 -> 10.244.0.4:8443 of default/guarded:https",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:3 external:1 external:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1 masquerading:1"},
	{"C.8: a pod reaches itself", "10.244.0.4 10.96.0.15:80", "1 forward 10.244.0.1 -> 10.244.0.4:8080 of default/one:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1 masquerading:2"},
	{"ClusterIP from a pod", "10.244.0.9 10.96.0.15:80", "1 forward 10.244.0.9 -> 10.244.0.4:8080 of default/one:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1"},
	{"ClusterIP from outside of the cluster", "172.22.7.200 10.96.0.15:80", "1 forward 10.244.0.1 -> 10.244.0.4:8080 of default/one:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:1 services:2 service:1 filter-forward:1 filter-forward:2 nat-postrouting:1 masquerading:1"},
	{"no endpoints", "10.244.0.9 10.96.0.13:80", "1 reject 10.244.0.9 -> 10.96.0.13:80 of default/empty:http",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 filter-forward:1 service-endpoints-check:1 reject-chain:1"},
	{"no endpoints, UDP is another port", "10.244.0.9 10.96.0.13:80 udp", "1 reject 10.244.0.9 -> 10.96.0.13:80",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 filter-forward:1 filter-forward:2 cluster-ips-check:1"},
	{"affinity", "10.244.0.2 10.96.0.14:80",
		"1/2 forward 10.244.0.2 -> 10.244.0.4:8080 of default/sticky:http; 1/2 forward 10.244.0.2 -> 10.244.0.9:8080 of default/sticky:http; 0 forward 10.244.0.2 -> 10.244.0.4:8080 of default/sticky:http?; 0 forward 10.244.0.2 -> 10.244.0.9:8080 of default/sticky:http?",
		"filter-prerouting-pre-dnat:1 nat-prerouting:1 services:2 service:3 endpoint:1 endpoint:2 filter-forward:1 filter-forward:2 nat-postrouting:1"},
	{"DNS", "10.244.0.9 10.96.0.53:53 udp", "1/2 forward 10.244.0.9 -> 10.244.0.2:53 of kube-system/kube-dns:dns; 1/2 forward 10.244.0.9 -> 10.244.0.3:53 of kube-system/kube-dns:dns", ""},
	{"IPv6 NodePort", "[fd00:1::9]:40000 [fd00:1::89]:30080", "1/2 forward fd00:10::1 -> [fd00:10::4]:8080 of default/web:http; 1/2 forward fd00:1::89 -> [fd00:10:1::7]:8080 of default/web:http", ""},
	{"IPv6 hairpin", "fd00:10::4 [fd00:96::f]:80", "1 forward fd00:10::1 -> [fd00:10::4]:8080 of default/one:http", ""},
	{"ICMP to a ClusterIP", "10.244.0.9 10.96.0.10 icmp", "1 reject 10.244.0.9 -> 10.96.0.10", ""},
	{"INVALID", "10.244.0.9 10.96.0.15:80 invalid", "1 forward 10.244.0.9 -> 10.96.0.15:80", ""},
}

func TestKubeProxyNFT(t *testing.T) {
	for _, file := range []string{"kube-proxy.nft", "kube-proxy.json", "kube-proxy.script"} {
		h := hostOf(t, detect.Options{}, nftFile(t, file), nftNode)
		for _, c := range kubeProxy {
			table := "ip kube-proxy"
			ends, way := outcomes(t, h, table, c.flow)
			if ends != c.ends {
				t.Errorf("%s, %s:\n got %s\nwant %s", file, c.name, ends, c.ends)
			}
			if c.way != "" && way != c.way {
				t.Errorf("%s, %s:\n  got %s\n want %s", file, c.name, way, c.way)
			}
		}
	}
}
