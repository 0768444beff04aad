package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ipvsPlan(t *testing.T, example string, more ...string) map[string]string {
	t.Helper()
	return sectionsOf(planText(t, filepath.Join("..", "..", "examples", "documents", example), append(more, "--proxy-mode", "ipvs")...))
}

// sectionsOf cuts a plan at its comment lines, which name what each part is for.
func sectionsOf(plan string) map[string]string {
	out := map[string]string{}
	section := ""
	for line := range strings.Lines(plan) {
		if name, ok := strings.CutPrefix(line, "# "); ok {
			section = strings.TrimSpace(name)
			continue
		}
		out[section] += line
	}
	return out
}

// TestDocument004InIPVSMode: from the Services of the document to exactly its virtual
// servers, and to exactly its nat chains.
func TestDocument004InIPVSMode(t *testing.T) {
	dumps := filepath.Join("..", "..", "testdata", "dumps")
	plan := ipvsPlan(t, "kubeadm-with-flannel-ipvs", "--node-ip", "172.22.7.89", "--node-ip", "172.17.0.1", "--node-ip", "10.244.0.0", "--node-ip", "10.244.0.1")

	want := chainsOf(t, readFile(t, filepath.Join(dumps, "004-kubeadm-v1.34.2-flannel-ipvs-mode.nat.restore.txt")), nil)
	if diff := cmp.Diff(want, chainsOf(t, plan["iptables-restore"], nil)); diff != "" || len(want) != 5 {
		t.Errorf("nat chains (-document +plan):\n%s", diff)
	}
	if diff := cmp.Diff(listed(readFile(t, filepath.Join(dumps, "004-ipvsadm-Ln.txt"))), asListed(t, plan["ipvsadm -R"])); diff != "" {
		t.Errorf("virtual servers (-document +plan):\n%s", diff)
	}
}

// listed returns the virtual servers of "ipvsadm -Ln" in the order of their text, a
// line each, without counts of connections.
func listed(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case words[0] == "IP" || words[0] == "Prot" || words[1] == "RemoteAddress:Port":
		case words[0] == "->":
			out[len(out)-1] += "; " + strings.Join(words[1:4], " ")
		default:
			out = append(out, strings.Join(words, " "))
		}
	}
	slices.Sort(out)
	return out
}

// asListed returns the input of "ipvsadm -R" as listed does.
func asListed(t *testing.T, text string) []string {
	t.Helper()
	server := regexp.MustCompile(`^-A -([tu]) (\S+) -s (\S+)$`)
	real := regexp.MustCompile(`^-a -[tu] \S+ -r (\S+) -m -w (\d+)$`)
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := server.FindStringSubmatch(line); m != nil {
			out = append(out, fmt.Sprintf("%s %s %s", map[string]string{"t": "TCP", "u": "UDP"}[m[1]], m[2], m[3]))
		} else if m := real.FindStringSubmatch(line); m != nil {
			out[len(out)-1] += fmt.Sprintf("; %s Masq %s", m[1], m[2])
		} else {
			t.Errorf("not understood: %s", line)
		}
	}
	slices.Sort(out)
	return out
}

// TestDocument003InIPVSMode: what the document shows of an older kube-proxy is all
// there, in its order, but for kubelet's drop mark, which nobody writes today.
// Beside it stands what today's form has more of.
func TestDocument003InIPVSMode(t *testing.T) {
	today := func(rule string) string {
		if strings.Contains(rule, "KUBE-MARK-DROP") {
			return ""
		}
		return rule
	}
	document := chainsOf(t, readFile(t, filepath.Join("..", "..", "testdata", "dumps", "003-ipvs-mode-rules.nat.txt")), today)
	plan := ipvsPlan(t, "nodeport-on-cce", "--masquerade-all", "--node-ip", "10.10.186.1")
	got := chainsOf(t, plan["iptables-restore"], nil)
	for chain, rules := range document {
		if diff := cmp.Diff(rules, intersect(got[chain], rules)); diff != "" {
			t.Errorf("%s (-document +plan):\n%s", chain, diff)
		}
	}
	const clusterIPs = `-m comment --comment "Kubernetes service cluster ip + port for masquerade purpose" -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ`
	want := chainsOf(t, `
-A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN
-A KUBE-SERVICES `+clusterIPs+`
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT
-A KUBE-NODE-PORT -p tcp -m comment --comment "Kubernetes nodeport TCP port for masquerade purpose" -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
-A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully
`, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nat chains (-wanted +plan):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"TCP 10.10.186.1:30000 rr; 10.10.186.67:80 Masq 1; 10.10.80.74:80 Masq 1",
		"TCP 10.247.113.122:8080 rr; 10.10.186.67:80 Masq 1; 10.10.80.74:80 Masq 1",
	}, asListed(t, plan["ipvsadm -R"])); diff != "" {
		t.Errorf("virtual servers (-wanted +plan):\n%s", diff)
	}
}
