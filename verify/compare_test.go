package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"portolan/backend/nftables"
	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/trace"
	"portolan/verify"
)

// comparedNode is a node of base.txtar.
func comparedNode(t *testing.T, args, edit string) verify.Input {
	t.Helper()
	s := newSetup(t, readParts(t, "testdata/base.txtar"), map[string]string{"args": args, "edit": edit})
	return s.input(t)
}

func changesText(c verify.Comparison) string {
	var out []string
	for _, x := range c.Changes {
		line := fmt.Sprintf("%s %s %s %s: %s: %s -> %s", x.Service, x.Kind, x.Frontend, x.Client, x.Effect, x.Sides[0].Verdict, x.Sides[1].Verdict)
		out = append(out, line+" | "+x.Why)
	}
	return strings.Join(out, "\n")
}

// withPlan is a node after Portolan has written its tables.
func withPlan(t *testing.T, in verify.Input) verify.Input {
	t.Helper()
	b := nftables.New(nftables.Options{Family: service.IPv4, MasqueradeBit: 14})
	plan, err := detect.Host(detect.Options{}, detect.Text{Name: "plan", Text: b.PlanText(planOf(t, b, in.Services))})
	if err != nil {
		t.Fatal(err)
	}
	in.Tracer = trace.New(verify.WithPlan(in.Tracer.Host(), plan), trace.Options{Reply: true})
	return in
}

// What becomes otherwise when a node in kube-proxy's ipvs mode gets Portolan's tables is
// what ipvs mode cannot do, and nothing else. The NodePorts of one address stand for
// those of all.
func TestCompareMigrationFromIPVS(t *testing.T) {
	t.Parallel()
	from := comparedNode(t, "mode ipvs", "")
	c := verify.Compare(from, withPlan(t, from))
	const (
		fallsBack = "A: in ipvs mode policy Local without an endpoint on the node falls back to all endpoints"
		holds     = "A: in ipvs mode policy Local also holds for clients on the node"
		both      = "10.244.1.5:8443, 10.244.2.5:8443"
	)
	want := strings.Join([]string{
		"default/away ClusterIP 10.96.0.12:80/tcp node: mended: 10.244.2.6:8080 -> drop | " + fallsBack,
		"default/away ClusterIP 10.96.0.12:80/tcp outside: mended: 10.244.2.6:8080; masqueraded -> drop | " + fallsBack,
		"default/away ClusterIP 10.96.0.12:80/tcp pod: mended: 10.244.2.6:8080 -> drop | " + fallsBack,
		"default/lb LoadBalancer IP 198.51.100.7:443/tcp node: mended: 10.244.1.5:8443 -> drop | A: in ipvs mode source ranges do not bind the node itself",
		"default/lb NodePort 192.0.2.10:30443/tcp endpoint: mended: 10.244.1.5:8443; masqueraded -> " + both + "; 1 of them masqueraded | " + holds,
		"default/lb NodePort 192.0.2.10:30443/tcp node: mended: 10.244.1.5:8443 -> " + both + " | " + holds,
		"default/lb NodePort 192.0.2.10:30443/tcp pod: mended: 10.244.1.5:8443 -> " + both + " | " + holds,
		"default/lb NodePort 192.0.2.10:30443/tcp pod elsewhere: mended: 10.244.1.5:8443 -> " + both + "; 1 of them masqueraded | " + holds,
	}, "\n")
	var got []string
	for line := range strings.Lines(changesText(c)) {
		if !strings.Contains(line, "10.244.1.0:3") && !strings.Contains(line, "10.244.1.1:3") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if c.Modes != [2]string{"ipvs", "nftables"} || c.Owners[0].Name != "kube-proxy" || c.Owners[1].Name != "portolan" || c.Compared < 50 {
		t.Errorf("%v %v, %d packets", c.Modes, c.Owners, c.Compared)
	}
	for _, x := range c.Changes {
		if x.Sides[0].Owner.Name != "kube-proxy" || x.Sides[1].Owner.Name != "portolan" || x.Sides[0].Rule == "" || x.Sides[1].Rule == "" || x.Asked == "" || x.Sides[0].Trace == nil {
			t.Errorf("not all is said of %s %s: %+v", x.Service, x.Client, x.Sides)
		}
	}
}

// The modes of Portolan do the same, but for NodePorts on loopback. (Where the policy of
// FORWARD is DROP, iptables' own table may come before ours, and refuse in its way.)
func TestCompareModes(t *testing.T) {
	t.Parallel()
	from := comparedNode(t, "mode iptables", "rules change FORWARD DROP => FORWARD ACCEPT")
	c := verify.Compare(from, withPlan(t, from))
	for _, x := range c.Changes {
		if !strings.HasPrefix(x.Frontend, "127.0.0.1:") || x.Effect != verify.Worsened {
			t.Errorf("%s", changesText(verify.Comparison{Changes: []verify.Change{x}}))
		}
	}
	if len(c.Changes) == 0 {
		t.Error("nothing answers on loopback in nftables mode, and nobody says so")
	}
	to := withPlan(t, from)
	for _, x := range c.Changes {
		if a := x.Sides[0].Trace; a != nil {
			to.Loopback = append(to.Loopback[:0], a.Flow.Dst)
		}
	}
	if c := verify.Compare(from, to); len(c.Changes) != 0 {
		t.Errorf("the proxy answers on loopback, yet:\n%s", changesText(c))
	}
}

// A fault of the second set of rules is a change for the worse, with its owner and
// cause; a host does what it does.
func TestCompareFault(t *testing.T) {
	t.Parallel()
	from := comparedNode(t, "mode iptables", "")
	if c := verify.Compare(from, comparedNode(t, "mode iptables", "")); len(c.Changes) != 0 {
		t.Errorf("a node is not like itself:\n%s", changesText(c))
	}
	c := verify.Compare(from, comparedNode(t, "mode iptables", "rules drop ^-A KUBE-SERVICES .*-d 10.96.0.53 "))
	want := "kube-system/dns:dns ClusterIP 10.96.0.53:53/udp pod: worsened: 10.244.2.53:53 -> goes on untranslated | B: frontend-missing: no rule answers for 10.96.0.53:53"
	if text := changesText(c); !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	for _, x := range c.Changes {
		if x.Service != "kube-system/dns:dns" || x.Effect != verify.Worsened || x.Sides[0].Owner.Name != "portolan" {
			t.Errorf("%+v", x)
		}
	}
}

// Another endpoint is a change, though everything else is alike.
func TestCompareEndpoint(t *testing.T) {
	t.Parallel()
	c := verify.Compare(comparedNode(t, "mode iptables", ""), comparedNode(t, "mode iptables", "rules change --to-destination 10.244.2.53:53 => --to-destination 10.244.2.99:53"))
	want := "kube-system/dns:dns ClusterIP 10.96.0.53:53/udp pod: worsened: 10.244.2.53:53 -> 10.244.2.99:53 | B: endpoint-stale: connections go to 10.244.2.99:53, which is no endpoint"
	if text := changesText(c); !strings.Contains(text, want) {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// The plan takes the place of a proxy's rules, and of nothing else.
func TestWithPlan(t *testing.T) {
	t.Parallel()
	read := func(texts ...string) *netfilter.Host {
		var list []detect.Text
		for i, text := range texts {
			list = append(list, detect.Text{Name: fmt.Sprint(i), Text: text})
		}
		h, err := detect.Host(detect.Options{}, list...)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	now := read(`*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-FIREWALL - [0:0]
:DOCKER - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A KUBE-SERVICES -d 10.96.0.1/32 -j ACCEPT
COMMIT
`, "table ip kube-proxy {\n}\ntable ip flannel-ipv4 {\n}\n", "-A -t 10.96.0.1:443 -s rr\n", "interfaces:\n- {name: kube-ipvs0, addresses: [10.96.0.1/32]}\n- {name: eth0, addresses: [192.0.2.1/24]}\n",
		"create KUBE-CLUSTER-IP hash:ip,port family inet\ncreate mine hash:ip family inet\n")
	plan := read("*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n-A KUBE-SERVICES -d 10.96.0.9/32 -j ACCEPT\nCOMMIT\n")
	h := verify.WithPlan(now, plan)
	var got []string
	for _, table := range h.Tables {
		for _, c := range table.Chains() {
			for _, r := range c.Rules {
				got = append(got, table.Name+": "+r.Text)
			}
		}
		if len(table.Chains()) == 0 {
			got = append(got, table.Name)
		}
	}
	want := "nat: -A PREROUTING -j KUBE-SERVICES\nnat: -A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER\nnat: -A KUBE-SERVICES -d 10.96.0.9/32 -j ACCEPT\nip flannel-ipv4"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if len(h.Servers) != 0 || len(h.Interfaces) != 1 || len(h.Sets) != 1 || h.Table(netfilter.IPv4, netfilter.Unstated, "nat").Chain("KUBE-FIREWALL") == nil {
		t.Errorf("servers %v, interfaces %v, sets %v", h.Servers, h.Interfaces, h.Sets)
	}
	if len(now.Tables) != 3 || len(now.Tables[0].Chain("KUBE-SERVICES").Rules) != 1 || len(now.Tables[0].Chain("PREROUTING").Rules) != 2 {
		t.Error("the host that is there was changed")
	}
}
