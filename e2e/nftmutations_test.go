package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// nftMutations are those of the nftables mode; edit gets the listing of a table.
var nftMutations = []mutation{
	{"masquerade lost", "nodeport Cluster both outside", drop("meta mark & ", "masquerade")},
	{"DROP and REJECT swapped", "clusterip Cluster none outside", swapVerdicts},
	{"hairpin rule lost", "clusterip Cluster both endpoint", drop("@hairpin", "masquerade")},
	{"last slot forgotten", "clusterip Cluster both pod", change("random mod 2 ", "random mod 1 ", "@eps-2")},
	{"slots too many", "clusterip Cluster both pod", change("random mod 2 ", "random mod 12 ", "@eps-2")}, // so many that no cell is lucky
	{"wrong port of endpoints", "clusterip Cluster local pod", change(" . 8080", " . 8081", " : ")},
	{"addresses forgotten", "externalip Cluster local pod", drop("map @service-ips")},
	{"node ports forgotten", "nodeport Cluster local outside", drop("map @nodeports")},
	{"UDP forgotten", "clusterip Cluster local pod", change(" . udp . ", " . sctp . ")},
	{"wrong mark", "nodeport Cluster both outside", change("| 0x00004000", "| 0x00008000")},
	{"source ranges ignored", "lb-outside Cluster local outside", drop("@limited", "@sources")},
	{"source ranges the wrong way round", "lb-inside Cluster local pod", change("!= @sources", "@sources")},
	{"short circuit of pods lost", "lb Local remote pod", drop(" saddr ", " dnat ", "numgen")},
	{"short circuit of the node lost", "lb Local remote node", drop("fib saddr type local dnat")},
	{"node not masqueraded with policy Local", "lb Local local node", drop("fib saddr type local meta mark set")},
	{"endpoints of policy Local lost", "lb Local both outside", drop("offset 65536")},
	{"DROP of policy Local lost", "clusterip Local remote outside", change(": goto discard", ": goto refuse")},
	{"external traffic not masqueraded", "lb Cluster both pod", inChains("-masq", change("meta mark set meta mark | 0x00004000 goto", "goto"))},
	{"cluster IP: others not masqueraded", "clusterip Cluster both outside", inChains("-masq-outside", change("meta mark set meta mark | 0x00004000 goto", "goto"))},
	{"cluster IP: pods masqueraded", "clusterip Cluster both pod", inChains("-masq-outside", drop(" saddr ", "goto"))},
	{"the node's own traffic forgotten", "clusterip Cluster local node", inChains("nat-output", drop("jump services"))},
	{"refusal lost", "lb Cluster none outside", drop("vmap @no-endpoints")},
	{"refusal of the node's own traffic lost", "lb Cluster none node", inChains("filter-output", drop("jump check-services"))},
	{"affinity lost", "affinity", drop("dnat ", "map @affinity")},
}

// swapVerdicts exchanges what verdict maps say about addresses without endpoints.
func swapVerdicts(rules []string) []string {
	swapped := change(": goto discard", ": (refuse)")(rules)
	swapped = change(": goto refuse", ": goto discard")(swapped)
	return change(": (refuse)", ": goto refuse")(swapped)
}

// inChains edits the rules of chains whose names end so.
func inChains(suffix string, edit func([]string) []string) func([]string) []string {
	return func(rules []string) []string {
		var out []string
		inside := false
		for _, r := range rules {
			if word := strings.Fields(r); len(word) == 3 && word[0] == "chain" {
				inside = strings.HasSuffix(word[1], suffix)
			}
			if inside {
				out = append(out, edit([]string{r})...)
			} else {
				out = append(out, r)
			}
		}
		return out
	}
}

// TestNFTMutations is TestMutations for the nftables mode.
func TestNFTMutations(t *testing.T) {
	t.Parallel()
	b := backends[slices.IndexFunc(backends, func(b portolan) bool { return b.mode == "nftables" })]
	table, err := readCells(b.mode)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, b, cellScenario())
	node := c.Node("node1")
	if err := c.stops["node1"](); err != nil { // it would mend the rules
		t.Fatal(err)
	}
	rules := map[string][]string{}
	for _, family := range []string{"ip", "ip6"} {
		list := strings.Split(c.table(t, node, family), "\n")
		if family == "ip6" {
			// nft before 1.0.7 aborts when it reads this rule; docs/modes.md.
			list = drop("update @affinity")(list)
		}
		rules[family] = list
	}
	load := func(m mutation) error { return c.loadMutatedTables(node, rules, m) }
	c.tryMutations(table, nftMutations, load)
	// What the last mutation lost is not lost by the backend.
	if err := load(mutation{}); err != nil {
		t.Error(err)
	}
}

// loadMutatedTables makes the mutated tables those of the node. A mutation that
// changes nothing is an error.
func (c *cluster) loadMutatedTables(node *lab.Node, rules map[string][]string, m mutation) error {
	changed := m.edit == nil
	var script strings.Builder
	for family, list := range rules {
		mutated := list
		if m.edit != nil {
			mutated = m.edit(list)
		}
		changed = changed || !slices.Equal(mutated, list)
		fmt.Fprintf(&script, "delete table %s portolan\n%s\n", family, strings.Join(mutated, "\n"))
	}
	if !changed {
		return fmt.Errorf("no rule is different")
	}
	cmd := node.Command(c.t.Context(), lab.HostVariant, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft -f: %w: %s", err, out)
	}
	return forgetFlows(node)
}
