package trace_test

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

func detectOptions(table string) detect.Options { return detect.Options{Table: table} }

const host003 = `interfaces: [{name: eth0, addresses: [10.0.0.7/24]}, {name: cni0, kind: bridge, addresses: [10.10.80.1/24]}]
routes: [{to: default, via: 10.0.0.1, dev: eth0}]
sysctls: {net.ipv4.ip_forward: "1"}
`

// rules003 is the older form: the dump, KUBE-MARK-MASQ, which it leaves out,
// and the last rule of KUBE-SERVICES.
func rules003(t testing.TB) *netfilter.Host {
	t.Helper()
	b, err := os.ReadFile(shared + "dumps/003-iptables-mode-rules.nat.txt")
	if err != nil {
		t.Fatal(err)
	}
	return hostOf(t, detect.Options{}, masqChains+string(b)+"-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\nCOMMIT\n", host003)
}

func each003(t *testing.T, f string) []trace.Outcome {
	t.Helper()
	a := trace.New(rules003(t), trace.Options{}).Trace(flow(t, f))
	if len(a.Outcomes) != 2 || !a.Certain() {
		t.Fatalf("%d outcomes", len(a.Outcomes))
	}
	return a.Outcomes
}

// ClusterIP goes straight to KUBE-SVC, NodePort by KUBE-NODEPORTS.
func TestR143R144Entry(t *testing.T) {
	for _, o := range each003(t, "203.0.113.9 10.247.113.122:8080 in=eth0") {
		if !strings.HasPrefix(path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:1 KUBE-SVC-T2QWCYCETO7AA6KW:1 ") {
			t.Error(path(o, "nat"))
		}
	}
}

// NodePort jumps to KUBE-SVC without KUBE-EXT, and is marked there.
func TestR145R146OldNodePort(t *testing.T) {
	for _, o := range each003(t, "203.0.113.9 10.0.0.7:30000 in=eth0") {
		if !strings.HasPrefix(path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:2 KUBE-NODEPORTS:1 KUBE-SVC-T2QWCYCETO7AA6KW:2 KUBE-MARK-MASQ:1 ") || !o.Masquerade {
			t.Error(path(o, "nat"))
		}
	}
}

// Masquerade-all marks a pod's packet too.
func TestR147MasqueradeAll(t *testing.T) {
	for _, o := range each003(t, "10.10.80.5 10.247.113.122:8080 in=cni0") {
		if !o.Masquerade {
			t.Error(o.Reason)
		}
	}
}

// The set of endpoints, in whatever order the rules have them.
func TestR148Endpoints(t *testing.T) {
	equal(t, "ends", strings.Join(ends(t, rules003(t), "10.10.80.5 10.247.113.122:8080 in=cni0"), ", "), "1/2 forward 10.10.186.67:80, 1/2 forward 10.10.80.74:80")
}

// The mark can decide routing.
func TestR149MarkRoutes(t *testing.T) {
	h := hostOf(t, detect.Options{}, "*mangle\n-A PREROUTING -p tcp --dport 80 -j MARK --set-mark 0x7\n-A OUTPUT -p tcp --dport 80 -j MARK --set-mark 0x7\nCOMMIT\n",
		plainHost+"rules: [{priority: 50, mark: 7, table: 77}]\n", "")
	h.Routes = append(h.Routes, netfilter.Route{To: netip.MustParsePrefix("0.0.0.0/0"), Via: mustAddr("198.51.100.9"), Dev: "eth1", Table: 77})
	for f, want := range map[string]string{"198.51.100.7 8.8.8.8:80 in=eth1": "eth1", "198.51.100.7 8.8.8.8:81 in=eth1": "eth0", "192.0.2.1 8.8.8.8:80": "eth1", "192.0.2.1 8.8.8.8:81": "eth0"} {
		o := only(t, h, f)
		if got := o.Hops[len(o.Hops)-1].Out; got != want {
			t.Errorf("%s leaves by %s", f, got)
		}
	}
}

// KUBE-SEP marks its own endpoint.
func TestR150SelfMark(t *testing.T) {
	h := rules003(t)
	nat := h.Table(netfilter.IPv4, 0, "nat")
	nat.Chain("KUBE-SVC-T2QWCYCETO7AA6KW").Rules = nat.Chain("KUBE-SVC-T2QWCYCETO7AA6KW").Rules[2:]
	for _, o := range trace.New(h, trace.Options{}).Trace(flow(t, "10.10.80.74 10.247.113.122:8080 in=cni0")).Outcomes {
		if self := o.Dst == mustAddr("10.10.80.74"); o.Masquerade != self {
			t.Errorf("to %s: masquerade %t", o.Dst, o.Masquerade)
		}
	}
}

// Pod traffic that enters at OUTPUT, as on some clouds; to the node
// itself it goes OUTPUT, POSTROUTING, PREROUTING, INPUT.
func TestR155EntryAtOutput(t *testing.T) {
	for _, o := range trace.New(rules003(t), trace.Options{}).Trace(flow(t, "10.10.80.5 10.247.113.122:8080 output")).Outcomes {
		if hooks(o) != "output postrouting" {
			t.Error(hooks(o))
		}
	}
	o := only(t, rules003(t), "10.10.80.5 10.0.0.7:22 output")
	if hooks(o) != "output postrouting prerouting input" || o.Verdict != trace.Input {
		t.Errorf("%s %s", hooks(o), o.Verdict)
	}
}

// The marking rules of ipvs mode read their sets.
func TestR165R193R194R196Sets(t *testing.T) {
	sets := `create KUBE-CLUSTER-IP hash:ip,port family inet
add KUBE-CLUSTER-IP 10.96.0.10,tcp:53
create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
add KUBE-NODE-PORT-TCP 31532
create KUBE-LOOP-BACK hash:ip,port,ip family inet
add KUBE-LOOP-BACK 10.244.0.4,tcp:80,10.244.0.4
`
	b, err := os.ReadFile(shared + "dumps/004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile("testdata/node004/host.yaml")
	if err != nil {
		t.Fatal(err)
	}
	h := hostOf(t, detect.Options{}, string(b), string(host), sets)
	equal(t, "cluster IP", strings.Fields(path(only(t, h, "172.22.7.200 10.96.0.10:53 in=eth0"), "nat"))[1], "KUBE-SERVICES:4")
	nodePort := path(only(t, h, "172.22.7.200 172.22.7.89:31532 in=eth0"), "nat")
	if !strings.HasPrefix(nodePort, "PREROUTING:1 KUBE-SERVICES:3 KUBE-NODE-PORT:1 KUBE-MARK-MASQ:1") {
		t.Error(nodePort)
	}
	if p := path(only(t, h, "127.0.0.1 127.0.0.1:31532"), "nat"); !strings.HasPrefix(p, "OUTPUT:1 KUBE-SERVICES:1 ") {
		t.Error(p)
	}
	// The hairpin rule: destination, port and source are in KUBE-LOOP-BACK.
	if o := only(t, h, "10.244.0.4 10.244.0.4:80 in=cni0"); !strings.HasSuffix(path(o, "nat"), "KUBE-POSTROUTING:1") || o.Src.String() != "10.244.0.1" {
		t.Errorf("%s %s", path(o, "nat"), o.Src)
	}
	// Without the sets the answer says that it does not know.
	if a := trace.New(hostOf(t, detect.Options{}, string(b), string(host)), trace.Options{}).Trace(flow(t, "172.22.7.200 10.96.0.10:53 in=eth0")); a.Certain() {
		t.Error("certain without the content of the sets")
	}
}
