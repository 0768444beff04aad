package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"portolan/kernel/iptables"
)

// From API objects to exactly the rules of the dumps: hashes of chains,
// probabilities, comments, and the order inside each chain.
func TestRulesOfTheDumps(t *testing.T) {
	tests := []struct {
		example, dump string
		// today rewrites a rule of an older kube-proxy to its form of today; ""
		// leaves it out.
		today func(rule string) string
	}{
		{"three-pods-on-two-nodes", "001-rules-filter-and-nat.txt", nil},
		{"kind-with-traefik", "002-kind-v1.23.5-iptables.save.txt", today002},
		{"kubeadm-with-flannel", "004-kubeadm-v1.34.2-flannel-iptables-mode.nat.restore.txt", nil},
	}
	for _, tt := range tests {
		t.Run(tt.example, func(t *testing.T) {
			want := chainsOf(t, readFile(t, filepath.Join("..", "..", "testdata", "dumps", tt.dump)), tt.today)
			got := chainsOf(t, planText(t, filepath.Join("..", "..", "examples", "documents", tt.example)), nil)
			for chain, rules := range want {
				have := got[chain]
				if chain == "KUBE-SERVICES" || chain == "KUBE-NODEPORTS" {
					// Services follow each other in an order of ours here; the 001
					// listing has only some of the rules.
					have = intersect(have, rules)
					last := len(rules) - 1
					if strings.Contains(rules[last], "must be the last") && got[chain][len(got[chain])-1] != rules[last] {
						t.Errorf("%s: the last rule is %s", chain, got[chain][len(got[chain])-1])
					}
					slices.Sort(have)
					rules = slices.Sorted(slices.Values(rules))
				}
				if diff := cmp.Diff(rules, have); diff != "" {
					t.Errorf("%s (-dump +plan):\n%s", chain, diff)
				}
			}
			if len(want) < 6 {
				t.Errorf("only %d chains were compared", len(want))
			}
		})
	}
}

func intersect(a, b []string) (out []string) {
	for _, s := range a {
		if slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

// today002: kube-proxy 1.23 put no endpoint into the comments of KUBE-SVC
// rules, ordered endpoints by hash, and had kubelet's drop mark.
func today002(rule string) string {
	if strings.Contains(rule, "KUBE-MARK-DROP") || strings.Contains(rule, "0x8000") {
		return ""
	}
	endpoints := map[string]string{
		"242VRRB6CJESMF7F": "10.244.0.5:8000", "2KMBOYXVR33SDSC2": "10.244.0.5:8443", "6E7XQMQ4RAYOWTTM": "10.244.0.3:53",
		"OJCTP5LCEHQJ3D72": "172.18.0.5:6443", "PUHFDAMRBZWCPADU": "10.244.0.4:9153", "SF3LG62VAE5ALYDV": "10.244.0.4:53",
		"WXWGHGKZOCNYRYI7": "10.244.0.4:53", "ZP3FB6NMPNCO4VBJ": "10.244.0.3:9153", "ZXMNUKOKXUTL2MK2": "10.244.0.3:53",
	}
	jump := regexp.MustCompile(`^(-A KUBE-SVC-\S+ -m comment --comment "[^"]+)(".*-j KUBE-SEP-)(\S+)$`)
	if m := jump.FindStringSubmatch(rule); m != nil {
		return m[1] + " -> " + endpoints[m[3]] + m[2] + m[3]
	}
	return rule
}

var proxyChain = regexp.MustCompile(`^-A (KUBE-(?:SERVICES|NODEPORTS|NODE-PORT|LOAD-BALANCER|POSTROUTING|MARK-MASQ|(?:SVC|SVL|EXT|FW|SEP)-\S+)) (.*)$`)

// chainsOf returns the canonical rules of the proxy's nat chains.
func chainsOf(t *testing.T, text string, today func(string) string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	table := "nat"
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = name
		}
		if today != nil {
			line = today(line)
		}
		m := proxyChain.FindStringSubmatch(line)
		if m == nil || table != "nat" {
			continue
		}
		rule, ok := iptables.Canonical(m[2])
		if !ok {
			t.Errorf("%s: not canonical: %s", m[1], m[2])
		}
		out[m[1]] = append(out[m[1]], rule)
	}
	return out
}

func planText(t *testing.T, manifests string, more ...string) string {
	t.Helper()
	var out, stderr bytes.Buffer
	root := newRootCommand()
	root.SetOut(&out)
	root.SetErr(&stderr)
	if more == nil {
		more = []string{"--cluster-cidr", "10.244.0.0/16"}
	}
	root.SetArgs(append([]string{"plan", "--manifests", manifests, "--hostname-override", "ubuntu", "--ip-family", "ipv4"}, more...))
	if err := root.ExecuteContext(context.Background()); err != nil {
		t.Fatalf("plan: %v\n%s", err, &stderr)
	}
	return out.String()
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
