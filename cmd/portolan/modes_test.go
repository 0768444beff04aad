package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modesCluster writes 2,500 Services with 2 endpoints each, of which one is on the
// node; grown has 3, and more adds Services.
func modesCluster(t *testing.T, grown, more int) (folder string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Node\nmetadata: {name: ubuntu}\nspec: {podCIDRs: [10.244.1.0/24]}\n")
	for n := range 2500 + more {
		endpoints := 2
		if n == 0 || n == grown { // so that one of that size is there before
			endpoints = 3
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: web-%d, namespace: default}\nspec: {clusterIP: 10.96.%d.%d, ports: [{port: 80, targetPort: 8080}]}\n", n, n/250, n%250+1)
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-%d-1, namespace: default, labels: {kubernetes.io/service-name: web-%d}}\n", n, n)
		b.WriteString("addressType: IPv4\nports: [{name: '', port: 8080}]\nendpoints:\n")
		for i := range endpoints {
			node := []string{"ubuntu", "node2", "node2"}[i]
			fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d], nodeName: %s}\n", 200+i, n/250, n%250+1, node)
		}
	}
	folder = t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// modeCounts are the lines of a plan by what they write.
func modeCounts(lines []string) map[string]int {
	kinds := [][2]string{{"address add ", "addresses"}, {"add KUBE-", "set entries"}, {"-A -t ", "virtual servers"}, {"-a -t ", "real servers"},
		{"-A ", "rules"}, {":KUBE-", "chains"}, {"add rule ", "rules"}, {"add chain ", "chains"}, {"\t", "elements"}}
	out := map[string]int{}
	for _, line := range lines {
		if i := slices.IndexFunc(kinds, func(k [2]string) bool { return strings.HasPrefix(line, k[0]) }); i >= 0 {
			out[kinds[i][1]]++
		}
	}
	return out
}

// inPlace are the lines of a plan, those of elements with their map.
func inPlace(plan string) (out []string) {
	heading := ""
	for line := range strings.Lines(plan) {
		line = strings.TrimRight(line, ",\n")
		if strings.HasPrefix(line, "\t") {
			line += " in " + heading
		} else {
			heading = line
		}
		out = append(out, line)
	}
	return out
}

// changed are the lines that only one of two plans has.
func changed(a, b []string) (out []string) {
	n := map[string]int{}
	for _, line := range a {
		n[line]--
	}
	for _, line := range b {
		n[line]++
	}
	for line, times := range n {
		for range max(times, -times) {
			out = append(out, line)
		}
	}
	return out
}

// TestFiguresOfModes: the counts in docs/modes.md are those of the plans.
func TestFiguresOfModes(t *testing.T) {
	modes := []string{"iptables", "nftables", "ipvs"}
	rows := map[string][]string{}
	before, grown, more := modesCluster(t, -1, 0), modesCluster(t, 1200, 0), modesCluster(t, -1, 1)
	for _, mode := range modes {
		plan := func(folder string) []string {
			return inPlace(planText(t, folder, "--cluster-cidr", "10.200.0.0/14", "--proxy-mode", mode, "--node-ip", "192.0.2.11"))
		}
		base := plan(before)
		rows["rules"] = append(rows["rules"], words(modeCounts(base), "rules", "chains"))
		rows["beside them"] = append(rows["beside them"], words(modeCounts(base), "elements", "virtual servers", "real servers", "set entries", "addresses"))
		for row, folder := range map[string]string{"an endpoint comes": grown, "a Service comes": more} {
			counts := modeCounts(changed(base, plan(folder)))
			rows[row] = append(rows[row], words(counts, "rules", "chains", "elements", "virtual servers", "real servers", "set entries", "addresses"))
		}
	}
	doc, err := os.ReadFile("../../docs/modes.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, cells := range rows {
		if line := "| " + row + " | " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(string(doc), line) {
			t.Errorf("docs/modes.md lacks the row\n%s", line)
		}
	}
}

// words writes counts in the order of their names; nothing is "-".
func words(counts map[string]int, names ...string) string {
	var out []string
	for _, name := range names {
		if n := counts[name]; n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, name))
		}
	}
	if out == nil {
		return "-"
	}
	return strings.Join(out, ", ")
}
