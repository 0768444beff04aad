package trace_test

import (
	"strings"
	"testing"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

// The -S form of the nat table walks like the restore form.
func TestR173ListRules(t *testing.T) {
	h := load(t, detectOptions("nat"), shared+"dumps/004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt", "testdata/node004/filter.save", "testdata/node004/host.yaml")
	a, b := only(t, h, "172.22.7.200 172.22.7.89:31532"), only(t, node004(t), "172.22.7.200 172.22.7.89:31532")
	equal(t, "nat", path(a, "nat"), path(b, "nat"))
}

// The whole inbound path of the NodePort; TestGoldenKernelTrace compares
// it with the kernel's own trace.
func TestR174NodePortPath(t *testing.T) {
	o := only(t, node004(t), "172.22.7.200 172.22.7.89:31532")
	equal(t, "nat", path(o, "nat"), "PREROUTING:1 KUBE-SERVICES:6 KUBE-NODEPORTS:2 KUBE-EXT-2CMXP7HKUVJN7L6M:1 KUBE-MARK-MASQ:1 KUBE-EXT-2CMXP7HKUVJN7L6M:2 KUBE-SVC-2CMXP7HKUVJN7L6M:2 KUBE-SEP-AAOCRVJBUI2XUHEI:2 POSTROUTING:1 KUBE-POSTROUTING:2 KUBE-POSTROUTING:3")
}

// Over loopback the first rule of KUBE-NODEPORTS counts, with nfacct.
func TestR175Localhost(t *testing.T) {
	o := only(t, node004(t), "127.0.0.1 127.0.0.1:31532")
	if !strings.HasPrefix(path(o, "nat"), "OUTPUT:1 KUBE-SERVICES:6 KUBE-NODEPORTS:1 KUBE-EXT") {
		t.Error(path(o, "nat"))
	}
	h := node004(t)
	h.Sysctls["net.ipv4.conf.all.route_localnet"] = "0"
	if o := only(t, h, "127.0.0.1 127.0.0.1:31532"); o.Verdict != trace.Dropped || !strings.Contains(o.Reason, "route_localnet") {
		t.Errorf("without route_localnet: %s %s", o.Verdict, o.Reason)
	}
}

// The first rule of KUBE-SVC does not match NodePort traffic.
func TestR176SVCFirstRule(t *testing.T) {
	if p := path(only(t, node004(t), "172.22.7.200 172.22.7.89:31532"), "nat"); strings.Contains(p, "KUBE-SVC-2CMXP7HKUVJN7L6M:1") {
		t.Error(p)
	}
}

// Docker's chains beside the proxy's.
func TestR178Docker(t *testing.T) {
	// To a local address that is no NodePort the DOCKER jump is taken too.
	if p := path(only(t, node004(t), "172.22.7.200 172.22.7.89:22"), "nat"); p != "PREROUTING:1 KUBE-SERVICES:6 PREROUTING:2" {
		t.Error(p)
	}
	// A local packet to 127.0.0.0/8 does not go to DOCKER.
	if p := path(only(t, node004(t), "127.0.0.1 127.0.0.1:22"), "nat"); strings.Contains(p, "OUTPUT:2") {
		t.Error(p)
	}
	if o := only(t, node004(t), "172.17.0.5 8.8.8.8:53 udp in=docker0"); o.Src.String() != "172.22.7.89" || !strings.HasSuffix(path(o, "nat"), "POSTROUTING:2") {
		t.Errorf("%s %s", o.Src, path(o, "nat"))
	}
}

// POSTROUTING: Services, Docker, flannel.
func TestR179PostroutingOrder(t *testing.T) {
	rules := node004(t).Table(netfilter.IPv4, 0, "nat").Chain("POSTROUTING").Rules
	if rules[0].Target != (netfilter.Jump{Chain: "KUBE-POSTROUTING"}) || rules[1].Target != (netfilter.Translate{Kind: netfilter.Masquerade}) || rules[2].Target != (netfilter.Jump{Chain: "FLANNEL-POSTRTG"}) {
		t.Errorf("%+v", rules)
	}
}

// Each of flannel's six rules has its packet.
func TestR180FlannelPostrtg(t *testing.T) {
	for rule, f := range map[string]string{
		"2": "10.244.0.9 10.244.1.7:80 in=cni0",
		"3": "10.244.1.7 10.244.0.9:80 in=flannel.1",
		"4": "172.22.7.200 10.244.0.4:80",
		"5": "10.244.0.9 172.22.7.200:8080 in=cni0",
		"6": "172.22.7.200 10.244.1.7:80",
	} {
		if p := path(only(t, node004(t), f), "nat"); !strings.HasSuffix(p, "FLANNEL-POSTRTG:"+rule) {
			t.Errorf("rule %s: %s", rule, p)
		}
	}
	// The first one sees marked packets that KUBE-POSTROUTING did not take.
	h := load(t, detectOptions("nat"), shared+"dumps/004-nat-counters.before.txt", "testdata/node004/host.yaml")
	h.Table(netfilter.IPv4, 0, "nat").Chain("KUBE-POSTROUTING").Rules = nil
	if p := path(only(t, h, "172.22.7.200 10.244.1.7:80 mark=0x4000"), "nat"); !strings.HasSuffix(p, "FLANNEL-POSTRTG:1") {
		t.Error(p)
	}
}

// What XOR with mask 0 does is said in words.
func TestR181XorInWords(t *testing.T) {
	for _, s := range only(t, node004(t), "172.22.7.200 172.22.7.89:31532").Steps {
		if s.Chain == "KUBE-POSTROUTING" && s.Rule == 2 && (!strings.Contains(s.Note, "toggles bit 0x4000") || !strings.Contains(s.Note, "cleared") || !strings.Contains(s.Note, "not masqueraded again")) {
			t.Error(s.Note)
		}
	}
}

// 8 KUBE-SEP, 5 KUBE-SVC and 1 KUBE-EXT chain refer to KUBE-MARK-MASQ.
func TestR186References(t *testing.T) {
	nat := node004(t).Table(netfilter.IPv4, 0, "nat")
	if n := nat.References("KUBE-MARK-MASQ"); n != 14 {
		t.Errorf("%d references", n)
	}
	by := map[string]int{}
	for _, c := range nat.Chains() {
		for _, r := range c.Rules {
			if r.Target == (netfilter.Jump{Chain: "KUBE-MARK-MASQ"}) && len(c.Name) > 8 {
				by[c.Name[:8]]++
			}
		}
	}
	if by["KUBE-SEP"] != 8 || by["KUBE-SVC"] != 5 || by["KUBE-EXT"] != 1 {
		t.Errorf("%v", by)
	}
}

// Every generation is accepted, no set of chains is assumed.
func TestR209Generations(t *testing.T) {
	for file, f := range map[string]string{
		"001-rules-filter-and-nat.txt":                              "10.244.0.9 10.107.38.142:80 in=cni0",
		"002-kind-v1.23.5-iptables.save.txt":                        "10.244.0.9 10.96.237.231:80 in=veth3",
		"003-iptables-mode-rules.nat.txt":                           "10.10.80.5 10.247.113.122:8080 in=cni0",
		"003-ipvs-mode-rules.nat.txt":                               "10.10.80.5 10.247.113.122:8080 in=cni0",
		"004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt": "10.244.0.9 10.106.224.38:80 in=cni0",
		"004-kubeadm-v1.34.2-flannel-iptables-mode.nat.S.txt":       "10.244.0.9 10.106.224.38:80 in=cni0",
		"004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt":     "10.244.0.9 10.106.224.38:80 in=cni0",
		"004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.S.txt":           "10.244.0.9 10.106.224.38:80 in=cni0",
	} {
		a := trace.New(load(t, detect.Options{}, shared+"dumps/"+file), trace.Options{}).Trace(flow(t, f))
		if len(a.Outcomes) == 0 || len(a.Outcomes[0].Steps) == 0 {
			t.Errorf("%s: no step", file)
		}
	}
}
