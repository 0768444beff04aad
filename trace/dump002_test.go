package trace_test

import (
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/trace"
)

// Both canaries are there, in three tables.
func TestR116Canaries(t *testing.T) {
	h := kind002(t)
	for _, table := range []string{"mangle", "filter", "nat"} {
		for _, chain := range []string{"KUBE-PROXY-CANARY", "KUBE-KUBELET-CANARY"} {
			if tab := h.Table(netfilter.IPv4, 0, table); tab == nil || tab.Chain(chain) == nil {
				t.Errorf("no %s in %s", chain, table)
			}
		}
	}
}

// The order of the filter table's built-in chains.
func TestR117R118R119FilterOrder(t *testing.T) {
	filter := kind002(t).Table(netfilter.IPv4, 0, "filter")
	for chain, want := range map[string]string{
		"INPUT": "KUBE-NODEPORTS KUBE-EXTERNAL-SERVICES KUBE-FIREWALL", "FORWARD": "KUBE-FORWARD KUBE-SERVICES KUBE-EXTERNAL-SERVICES", "OUTPUT": "KUBE-SERVICES KUBE-FIREWALL",
	} {
		var got []string
		for _, r := range filter.Chain(chain).Rules {
			got = append(got, r.Target.(netfilter.Jump).Chain)
		}
		equal(t, chain, strings.Join(got, " "), want)
	}
}

// KUBE-MARK-DROP and KUBE-MARK-MASQ set their bits and leave others.
func TestR121Marks(t *testing.T) {
	nat := kind002(t).Table(netfilter.IPv4, 0, "nat")
	for chain, bit := range map[string]uint32{"KUBE-MARK-DROP": 0x8000, "KUBE-MARK-MASQ": 0x4000} {
		m := nat.Chain(chain).Rules[0].Target.(netfilter.SetMark)
		if m.Apply(0x1) != bit|1 || m.Apply(bit) != bit {
			t.Errorf("%s: %+v", chain, m)
		}
	}
}

// A packet that carries the drop mark dies in KUBE-FIREWALL.
func TestR120FirewallDropsMarked(t *testing.T) {
	o := only(t, kind002(t), "203.0.113.9 172.18.0.5:22 in=eth0 mark=0x8000")
	if o.Verdict != trace.Dropped || path(o, "filter") != "INPUT:1 INPUT:2 INPUT:3 KUBE-FIREWALL:1" {
		t.Errorf("%s %s", o.Verdict, path(o, "filter"))
	}
	h := kind002(t)
	h.Sysctls["net.ipv4.conf.eth0.route_localnet"] = "1"
	if o := only(t, h, "203.0.113.9 127.0.0.1:10249 in=eth0"); o.Verdict != trace.Dropped || !strings.Contains(o.Reason, "localnet") || len(o.Steps) == 0 {
		t.Errorf("localnet: %s %s", o.Verdict, o.Reason)
	}
	if o := only(t, h, "127.0.0.1 127.0.0.1:10249"); o.Verdict != trace.Input {
		t.Errorf("local client: %s %s", o.Verdict, o.Reason)
	}
}

// default/kubernetes:https has an endpoint on the node itself: after DNAT the
// packet goes to INPUT, not to FORWARD.
func TestR124HostNetworkEndpoint(t *testing.T) {
	o := only(t, kind002(t), "10.244.0.5 10.96.0.1:443 in=veth5")
	if o.Verdict != trace.Input || dst(o) != "172.18.0.5:6443" || hooks(o) != "prerouting input" {
		t.Errorf("%s %s %s", o.Verdict, dst(o), hooks(o))
	}
}

// Docker's DNS rewrite, and the way back of its answers.
func TestR127R128DockerDNS(t *testing.T) {
	h := kind002(t)
	h.Sysctls["net.ipv4.conf.all.route_localnet"] = "1"
	o := only(t, h, "172.18.0.5 192.168.31.191:53 udp local")
	if o.Verdict != trace.Input || dst(o) != "127.0.0.11:50410" || !strings.Contains(path(o, "nat"), "OUTPUT:2 DOCKER_OUTPUT:2") {
		t.Errorf("%s %s %s", o.Verdict, dst(o), path(o, "nat"))
	}
	tcp := only(t, h, "172.18.0.5 192.168.31.191:53 local")
	equal(t, "tcp", dst(tcp), "127.0.0.11:42845")
	snat := kind002(t).Table(netfilter.IPv4, 0, "nat").Chain("DOCKER_POSTROUTING").Rules[1]
	want := netfilter.Translate{Kind: netfilter.SNAT, Addrs: netfilter.AddrRange{First: mustAddr("192.168.31.191"), Last: mustAddr("192.168.31.191")}, Ports: netfilter.PortRange{First: 53, Last: 53}}
	if snat.Target != want {
		t.Errorf("SNAT: %+v", snat.Target)
	}
	back := only(t, h, "127.0.0.11:50410 192.168.31.191:40000 udp local")
	if back.Src.String() != "127.0.0.11" && back.Verdict == trace.Dropped {
		t.Errorf("answer: %s", back.Reason)
	}
}

// KIND-MASQ-AGENT returns pod traffic and masquerades the rest.
func TestR129KindMasqAgent(t *testing.T) {
	out := only(t, kind002(t), "10.244.0.5 8.8.8.8:53 udp in=veth5")
	if !out.Masquerade || out.Src.String() != "172.18.0.5" || !strings.HasSuffix(path(out, "nat"), "POSTROUTING:3 KIND-MASQ-AGENT:2") {
		t.Errorf("%s %s", out.Src, path(out, "nat"))
	}
	in := only(t, kind002(t), "10.244.0.5 10.244.0.3:53 udp in=veth5")
	if in.Masquerade || !strings.HasSuffix(path(in, "nat"), "POSTROUTING:3 KIND-MASQ-AGENT:1") {
		t.Errorf("%s %s", in.Src, path(in, "nat"))
	}
	local := only(t, kind002(t), "172.18.0.5 172.18.0.5:22")
	if strings.Contains(path(local, "nat"), "KIND-MASQ-AGENT") {
		t.Errorf("to the node itself: %s", path(local, "nat"))
	}
}

// The inbound nat path of traefik.
func TestR131InboundNAT(t *testing.T) {
	o := only(t, kind002(t), "10.244.0.3 10.96.237.231:80 in=veth3")
	if !strings.HasPrefix(path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:1 KUBE-SVC-3CRYVFGPLWYNKULQ:2 KUBE-SEP-242VRRB6CJESMF7F:2") || dst(o) != "10.244.0.5:8000" {
		t.Errorf("%s %s", path(o, "nat"), dst(o))
	}
	equal(t, "service", o.Service, "default/traefik:web")
}

// INPUT is the filter path of what stays local; a packet for the
// traefik pod goes through FORWARD.
func TestR132FilterPath(t *testing.T) {
	local := only(t, kind002(t), "203.0.113.9 172.18.0.5:22 in=eth0")
	equal(t, "local", path(local, "filter"), "INPUT:1 INPUT:2 INPUT:3")
	pod := only(t, kind002(t), "203.0.113.9 10.96.237.231:80 in=eth0")
	if hooks(pod) != "prerouting forward postrouting" || path(pod, "filter") != "FORWARD:1 KUBE-FORWARD:2" {
		t.Errorf("%s %s", hooks(pod), path(pod, "filter"))
	}
}

// The outbound path.
func TestR133Outbound(t *testing.T) {
	o := only(t, kind002(t), "172.18.0.5 10.96.237.231:443")
	equal(t, "filter", path(o, "filter"), "OUTPUT:1 OUTPUT:2")
	if p := path(o, "nat"); !strings.HasPrefix(p, "OUTPUT:1 KUBE-SERVICES:2 ") || !strings.HasSuffix(p, "POSTROUTING:1 KUBE-POSTROUTING:2 KUBE-POSTROUTING:3") {
		t.Error(p)
	}
}

// A host process hits KUBE-SERVICES only if it calls a Service.
func TestR134HostToService(t *testing.T) {
	if p := path(only(t, kind002(t), "172.18.0.5 8.8.8.8:53 udp"), "nat"); strings.Contains(p, "KUBE-SVC") || strings.Contains(p, "KUBE-SERVICES:") {
		t.Error(p)
	}
	if o := only(t, kind002(t), "172.18.0.5 10.96.237.231:80"); dst(o) != "10.244.0.5:8000" {
		t.Error(dst(o))
	}
}

// The Service kube-dns has two endpoints for each port, half and half.
func TestR123DNSHalves(t *testing.T) {
	equal(t, "dns", strings.Join(ends(t, kind002(t), "10.244.0.5 10.96.0.10:53 udp in=veth5"), ", "), "1/2 forward 10.244.0.3:53, 1/2 forward 10.244.0.4:53")
}

// The words of a listing are in netfilter/iptsave's tests; the rules it
// gives walk like saved ones.
func TestR135ListingWalks(t *testing.T) {
	h := load(t, detectOptions("nat"), shared+"dumps/004-nat-counters.before.txt", "testdata/node004/host.yaml")
	o := trace.New(h, trace.Options{}).Trace(flow(t, "10.244.0.9 172.22.7.200:8080 in=cni0")).Outcomes[0]
	if o.Src.String() != "172.22.7.89" || !strings.HasSuffix(path(o, "nat"), "POSTROUTING:3 FLANNEL-POSTRTG:5") {
		t.Errorf("%s %s", o.Src, path(o, "nat"))
	}
}
