package explain_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
	"portolan/trace/explain"
)

var update = flag.Bool("update", false, "write the output into docs/trace.md")

const (
	dump004 = "../../testdata/dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt"
	filter4 = "../testdata/node004/filter.save"
	host004 = "../testdata/node004/host.yaml"
)

// node is a small host for rules that are given as text.
const node = `interfaces: [{name: eth0, addresses: [172.22.7.89/20]}, {name: cni0, kind: bridge, addresses: [10.244.0.1/24]}]
routes: [{to: default, via: 172.22.15.253, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`

const emptyRules = `*filter
:KUBE-SERVICES - [0:0]
-A FORWARD -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.77/32 -p tcp -m comment --comment "default/empty:http has no endpoints" -m tcp --dport 80 -j REJECT --reject-with icmp-port-unreachable
COMMIT
`

const unknownRules = `*filter
-A FORWARD -s 10.244.0.0/16 -m geoip ! --destination-country DE -j DROP
COMMIT
`

const affinityRules = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-2CMXP7HKUVJN7L6M - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA1 - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAA2 - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.106.224.38/32 -p tcp -m comment --comment "default/nginx cluster IP" -m tcp --dport 80 -j KUBE-SVC-2CMXP7HKUVJN7L6M
-A KUBE-SVC-2CMXP7HKUVJN7L6M -m comment --comment "default/nginx -> 10.244.0.4:80" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-AAAAAAAAAAAAAAA1 --mask 255.255.255.255 --rsource -j KUBE-SEP-AAAAAAAAAAAAAAA1
-A KUBE-SVC-2CMXP7HKUVJN7L6M -m comment --comment "default/nginx -> 10.244.0.5:80" -m recent --rcheck --seconds 10800 --reap --name KUBE-SEP-AAAAAAAAAAAAAAA2 --mask 255.255.255.255 --rsource -j KUBE-SEP-AAAAAAAAAAAAAAA2
-A KUBE-SVC-2CMXP7HKUVJN7L6M -m comment --comment "default/nginx -> 10.244.0.4:80" -m statistic --mode random --probability 0.50000000000 -j KUBE-SEP-AAAAAAAAAAAAAAA1
-A KUBE-SVC-2CMXP7HKUVJN7L6M -m comment --comment "default/nginx -> 10.244.0.5:80" -j KUBE-SEP-AAAAAAAAAAAAAAA2
-A KUBE-SEP-AAAAAAAAAAAAAAA1 -p tcp -m comment --comment "default/nginx" -m recent --set --name KUBE-SEP-AAAAAAAAAAAAAAA1 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.0.4:80
-A KUBE-SEP-AAAAAAAAAAAAAAA2 -p tcp -m comment --comment "default/nginx" -m recent --set --name KUBE-SEP-AAAAAAAAAAAAAAA2 --mask 255.255.255.255 --rsource -m tcp -j DNAT --to-destination 10.244.0.5:80
COMMIT
`

// shown are the scenarios of docs/trace.md. rules "" is the node of the
// kubeadm cluster.
var shown = []struct {
	name, rules, sysctl string
	src, dst            string
	proto               uint8
	command             string
}{
	{"nodeport", "", "", "172.22.7.200:42678", "172.22.7.89:31532", netfilter.TCP, "--src 172.22.7.200:42678 --dst 172.22.7.89:31532"},
	{"dns", "", "", "10.244.0.9", "10.96.0.10:53", netfilter.UDP, "--src 10.244.0.9 --dst 10.96.0.10:53 --proto udp"},
	{"hairpin", "", "", "10.244.0.4", "10.106.224.38:80", netfilter.TCP, "--src 10.244.0.4 --dst 10.106.224.38:80"},
	{"host", "", "", "172.22.7.89", "10.106.224.38:80", netfilter.TCP, "--src 172.22.7.89 --dst 10.106.224.38:80"},
	{"localhost", "", "", "127.0.0.1", "127.0.0.1:31532", netfilter.TCP, "--src 127.0.0.1 --dst 127.0.0.1:31532"},
	{"outside", "", "", "10.244.0.9", "172.22.7.200:8080", netfilter.TCP, "--src 10.244.0.9 --dst 172.22.7.200:8080"},
	{"empty", emptyRules, "", "10.244.0.9", "10.96.0.77:80", netfilter.TCP, "--src 10.244.0.9 --dst 10.96.0.77:80 --rules node.save --host node.yaml"},
	{"forwarding", "", "0", "172.22.7.200", "10.106.224.38:80", netfilter.TCP, "--src 172.22.7.200 --dst 10.106.224.38:80"},
	{"unknown", unknownRules, "", "10.244.0.9", "198.51.100.7:443", netfilter.TCP, "--src 10.244.0.9 --dst 198.51.100.7:443 --rules node.save --host node.yaml"},
	{"affinity", affinityRules, "", "10.244.0.9", "10.106.224.38:80", netfilter.TCP, "--src 10.244.0.9 --dst 10.106.224.38:80 --rules node.save --host node.yaml"},
	{"nftables", "@kube-proxy.nft", "", "172.22.7.200", "172.22.7.89:30080", netfilter.TCP, "--src 172.22.7.200 --dst 172.22.7.89:30080 --rules ruleset.nft --host node.yaml"},
	{"nftables-local", "@kube-proxy.nft", "", "198.51.100.5", "203.0.113.10:80", netfilter.TCP, "--src 198.51.100.5 --dst 203.0.113.10:80 --rules ruleset.nft --host node.yaml"},
}

func end(t *testing.T, s string) (netip.Addr, uint16) {
	t.Helper()
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr(), ap.Port()
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a, 0
}

func answer(t *testing.T, i int) (*trace.Tracer, trace.Answer) {
	t.Helper()
	s := shown[i]
	texts := []detect.Text{{Name: "node.save", Text: s.rules}, {Name: "node.yaml", Text: node}}
	if file, is := strings.CutPrefix(s.rules, "@"); is {
		b, err := os.ReadFile("../../testdata/nft/" + file)
		if err != nil {
			t.Fatal(err)
		}
		texts[0] = detect.Text{Name: "ruleset.nft", Text: string(b)}
		texts[1].Text = strings.Replace(node, "dev: eth0}]", "dev: eth0}, {to: 10.244.1.0/24, via: 172.22.7.90, dev: eth0}]", 1)
	}
	if s.rules == "" {
		var err error
		if texts, err = detect.Read(dump004, filter4, host004); err != nil {
			t.Fatal(err)
		}
		texts[1].Text = withoutRaw(texts[1].Text)
	}
	h, err := detect.Host(detect.Options{}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	if s.sysctl != "" {
		h.Sysctls["net.ipv4.ip_forward"] = s.sysctl
	}
	f := trace.Flow{Proto: s.proto}
	f.Src, f.SrcPort = end(t, s.src)
	f.Dst, f.DstPort = end(t, s.dst)
	tr := trace.New(h, trace.Options{Reply: true})
	return tr, tr.Trace(f)
}

// withoutRaw takes the kernel trace's own rules out of the fixture.
func withoutRaw(s string) string {
	a, b := strings.Index(s, "*raw"), strings.Index(s, "*filter")
	return s[:a] + s[b:]
}

// TestDocs: the output in docs/trace.md is what the program says.
func TestDocs(t *testing.T) {
	const path = "../../docs/trace.md"
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for i, s := range shown {
		tr, a := answer(t, i)
		block := fmt.Sprintf("<!-- trace: %s -->\n\n```\n$ portolan trace %s\n%s```\n", s.name, s.command, explain.Text(tr, a))
		place := regexp.MustCompile("(?s)<!-- trace: " + s.name + " -->\n(\n```\n.*?\n```\n)?")
		if place.FindString(doc) == "" {
			t.Fatalf("docs/trace.md has no place for %s", s.name)
		}
		if *update {
			doc = place.ReplaceAllLiteralString(doc, block)
		} else if !strings.Contains(doc, block) {
			t.Errorf("docs/trace.md shows something else for %s; run go test ./trace/explain -update and read the difference. Now it is:\n%s", s.name, block)
		}
	}
	if *update {
		if err := os.WriteFile(path, []byte(doc), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHeadlines: the first line begins with the verdict and says where the
// packet ends.
func TestHeadlines(t *testing.T) {
	for i, want := range []string{
		"forward: 172.22.7.200:42678 -> 172.22.7.89:31532 tcp reaches 10.244.0.4:80, an endpoint of default/nginx, which sees 10.244.0.1 as the client",
		"forward: 10.244.0.9 -> 10.96.0.10:53 udp goes to one of 2 endpoints of kube-system/kube-dns:dns, which sees the client's own address",
		"forward: 10.244.0.4 -> 10.106.224.38:80 tcp reaches 10.244.0.4:80, an endpoint of default/nginx, which sees 10.244.0.1 as the client",
		"output: 172.22.7.89 -> 10.106.224.38:80 tcp reaches 10.244.0.4:80, an endpoint of default/nginx, which sees 10.244.0.1 as the client",
		"output: 127.0.0.1 -> 127.0.0.1:31532 tcp reaches 10.244.0.4:80, an endpoint of default/nginx, which sees 10.244.0.1 as the client",
		"forward: 10.244.0.9 -> 172.22.7.200:8080 tcp goes on to its destination, which sees 172.22.7.89 as the client",
		"reject: 10.244.0.9 -> 10.96.0.77:80 tcp: rule 1 of filter KUBE-SERVICES rejects it with icmp-port-unreachable: default/empty:http has no endpoints",
		"drop: 172.22.7.200 -> 10.106.224.38:80 tcp: destination rewritten to 10.244.0.4:80, an endpoint of default/nginx; the host does not forward (net.ipv4.ip_forward is 0)",
		"uncertain: 50% drop, 50% forward: 10.244.0.9 -> 198.51.100.7:443 tcp (filter FORWARD rule 1: the match -m geoip ! --destination-country DE is not understood)",
		"forward: 10.244.0.9 -> 10.106.224.38:80 tcp goes to one of 2 endpoints of default/nginx, which sees the client's own address",
		"forward: 172.22.7.200 -> 172.22.7.89:30080 tcp goes to one of 2 endpoints of default/web:http, which sees 10.244.0.1 as the client",
		"drop: 198.51.100.5 -> 203.0.113.10:80 tcp: rule 1 of ip kube-proxy service-endpoints-check drops it: default/local:http",
	} {
		if _, a := answer(t, i); explain.Headline(a) != want {
			t.Errorf("%s:\n got %s\nwant %s", shown[i].name, explain.Headline(a), want)
		}
	}
}

// TestJSON: the fields and values of the contract.
func TestJSON(t *testing.T) {
	tr, a := answer(t, 1)
	b, err := explain.JSON(tr, a)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	outs := got["outcomes"].([]any)
	o := outs[0].(map[string]any)
	step := o["steps"].([]any)[1].(map[string]any)
	for name, x := range map[string]struct{ got, want any }{
		"apiVersion": {got["apiVersion"], "portolan.io/v1"}, "outcomes": {len(outs), 2}, "probability": {o["probability"], 0.5}, "share": {o["share"], "1/2"},
		"certain": {o["certain"], true}, "verdict": {o["verdict"], "forward"}, "src": {o["src"], "10.244.0.9"}, "dst": {o["dst"], "10.244.0.2:53"},
		"dnat": {o["dnat"], true}, "masquerade": {o["masquerade"], false}, "service": {o["service"], "kube-system/kube-dns:dns"},
		"hook": {step["hook"], "prerouting"}, "table": {step["table"], "nat"}, "chain": {step["chain"], "KUBE-SERVICES"}, "rule": {step["rule"], 3.0},
		"action": {step["action"], "jump"}, "target": {step["target"], "KUBE-SVC-TCOU7JCQXEZGVUNU"},
	} {
		if x.got != x.want {
			t.Errorf("%s is %v, want %v", name, x.got, x.want)
		}
	}
	if !strings.HasPrefix(step["text"].(string), "-A KUBE-SERVICES -d 10.96.0.10/32 ") || o["reason"] == "" {
		t.Error(step["text"], o["reason"])
	}
	flow := got["flow"].(map[string]any)
	if flow["src"] != "10.244.0.9" || flow["dst"] != "10.96.0.10:53" || flow["proto"] != "udp" {
		t.Error(flow)
	}
}

// TestDot: edges carry the shares of the packets that take them.
func TestDot(t *testing.T) {
	tr, a := answer(t, 1)
	dot := explain.Dot(tr, a)
	for _, want := range []string{"digraph trace {", `label="kube-system/kube-dns:dns endpoint 10.244.0.2:53"`, `label="1/2"`, `label="1"`} {
		if !strings.Contains(dot, want) {
			t.Errorf("no %s in\n%s", want, dot)
		}
	}
}

// TestCapture: before routing on the way in, after it on the way out.
func TestCapture(t *testing.T) {
	_, a := answer(t, 0)
	o := &a.Outcomes[0]
	for hop, want := range map[int]string{
		0: "tcpdump -ni eth0 'tcp and src host 172.22.7.200 and src port 42678 and dst host 172.22.7.89 and dst port 31532'",
		2: "tcpdump -ni cni0 'tcp and src host 10.244.0.1 and dst host 10.244.0.4 and dst port 80'",
	} {
		if got := explain.Capture(o, hop); got != want {
			t.Errorf("hop %d: %s", hop, got)
		}
	}
}
