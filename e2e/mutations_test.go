package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan/lab"
)

// mutation makes rules wrong in one way. The table of cells is worth something only
// if it sees each of them.
type mutation struct {
	name string
	// sure is a cell that must turn red, without protocol and family: it must in all
	// of them. Or "shares" or "affinity", which no single cell can show.
	sure string
	// edit gets the saved rules of one family.
	edit func(rules []string) []string
}

var mutations = []mutation{
	{"masquerade lost", "nodeport Cluster both outside", drop("-j MASQUERADE")},
	{"DROP and REJECT swapped", "clusterip Cluster none outside", swapRefusals},
	{"hairpin rule lost", "clusterip Cluster both endpoint", drop("-A KUBE-SEP-", "-j KUBE-MARK-MASQ")},
	{"last slot leads to the first endpoint", "clusterip Cluster both pod", wrongSlot},
	{"one endpoint is another", "clusterip Cluster both pod", wrongEndpoint},
	{"wrong port of endpoints", "clusterip Cluster local pod", change(":8080", ":8081", "--to-destination")},
	{"wrong probability", "shares", change("--probability 0.5", "--probability 0.9", "-A KUBE-SVC-")},
	{"external IPs forgotten", "externalip Cluster local pod", drop("-A KUBE-SERVICES", " external IP\"")},
	{"load balancer IPs forgotten", "lb Cluster local outside", drop("-A KUBE-SERVICES", " loadbalancer IP\"")},
	{"jump to node ports lost", "nodeport Cluster local outside", drop("-A KUBE-SERVICES", "-j KUBE-NODEPORTS")},
	{"node ports not on loopback", "nodeport-localhost Local both node", loopbackExcepted},
	{"UDP forgotten", "clusterip Cluster local pod", drop("-A KUBE-SERVICES", "-p udp", "-j KUBE-S")},
	{"wrong mark", "nodeport Cluster both outside", change("0x4000/0x4000", "0x8000/0x8000", "-A KUBE-MARK-MASQ")},
	{"source ranges ignored", "lb-outside Cluster local outside", change("-j KUBE-FW-", "-j KUBE-EXT-", "-A KUBE-SERVICES")},
	{"source ranges of pods lost", "lb-inside Cluster local pod", drop("-A KUBE-FW-", "-s 10.244.", "-j KUBE-EXT-")},
	{"DROP of source ranges lost", "lb-outside Cluster local outside", drop("-A KUBE-PROXY-FIREWALL", "-j DROP")},
	{"short circuit of pods lost", "lb Local remote pod", drop("pod traffic for ")},
	{"short circuit of the node lost", "lb Local remote node", drop("route LOCAL traffic for ")},
	{"node not masqueraded with policy Local", "lb Local local node", drop("masquerade LOCAL traffic for ")},
	{"external policy Local ignored", "lb Local both outside", change("-j KUBE-SVL-", "-j KUBE-SVC-", "-A KUBE-EXT-")},
	{"DROP of policy Local lost", "clusterip Local remote outside", drop("has no local endpoints", "-j DROP")},
	{"external traffic not masqueraded", "lb Cluster both pod", drop("masquerade traffic for ")},
	{"cluster IP: others not masqueraded", "clusterip Cluster both outside", drop("-A KUBE-SVC-", "-j KUBE-MARK-MASQ")},
	{"cluster IP: pods masqueraded", "clusterip Cluster both pod", podsToo},
	{"the node's own traffic forgotten", "clusterip Cluster local node", drop("-A OUTPUT", "service portals", "-j KUBE-SERVICES")},
	{"refusal of the node's own traffic lost", "lb Cluster none node", drop("-A KUBE-SERVICES", "-j KUBE-EXTERNAL-SERVICES")},
	{"affinity lost", "affinity", drop("-m recent", "--rcheck")},
}

// drop leaves out the rules that have all these parts.
func drop(parts ...string) func([]string) []string {
	return func(rules []string) []string {
		return slices.DeleteFunc(slices.Clone(rules), func(r string) bool { return hasAll(r, parts) })
	}
}

// change replaces a text in the rules that have all these parts.
func change(old, by string, parts ...string) func([]string) []string {
	return func(rules []string) []string {
		out := slices.Clone(rules)
		for i, r := range out {
			if hasAll(r, parts) {
				out[i] = strings.ReplaceAll(r, old, by)
			}
		}
		return out
	}
}

func hasAll(rule string, parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(rule, p) })
}

func swapRefusals(rules []string) []string {
	out := slices.Clone(rules)
	for i, r := range out {
		if strings.Contains(r, " endpoints\"") || strings.Contains(r, "local endpoints\"") {
			if before, is := strings.CutSuffix(r, "-j DROP"); is {
				out[i] = before + "-j REJECT"
			} else if before, _, is := strings.Cut(r, "-j REJECT"); is {
				out[i] = before + "-j DROP"
			}
		}
	}
	return out
}

// wrongSlot makes the last rule of a choice lead where the one before it does.
func wrongSlot(rules []string) []string {
	out := slices.Clone(rules)
	for i, r := range out {
		if i > 0 && strings.HasPrefix(r, "-A KUBE-SVC-") && strings.Contains(r, "-j KUBE-SEP-") &&
			!strings.Contains(r, "--probability") && !strings.Contains(r, "--rcheck") && strings.Contains(out[i-1], "--probability 0.5") {
			at, before := strings.LastIndex(r, "-j "), strings.LastIndex(out[i-1], "-j ")
			out[i] = r[:at] + out[i-1][before:]
		}
	}
	return out
}

// wrongEndpoint leads who is sent to pod a to pod b.
func wrongEndpoint(rules []string) []string {
	out := slices.Clone(rules)
	for i, r := range out {
		for family, right := range cellPods[0].Addrs {
			if strings.Contains(r, "-j DNAT") {
				out[i] = strings.Replace(out[i], text(right)+":", text(cellPods[1].Addrs[family])+":", 1)
			}
		}
	}
	return out
}

// text is an address as it stands before a port.
func text(a netip.Addr) string {
	return strings.TrimSuffix(netip.AddrPortFrom(a, 0).String(), ":0")
}

// loopbackExcepted writes the rule of a node whose NodePorts do not answer on
// loopback; the family whose do not anyway stays as it is.
func loopbackExcepted(rules []string) []string {
	return change("-m addrtype", "! -d 127.0.0.0/8 -m addrtype", "-A KUBE-SERVICES -m comment", "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")(rules)
}

// podsToo takes the exception for pods out of what masquerades at cluster IPs.
func podsToo(rules []string) []string {
	out := slices.Clone(rules)
	for i, r := range out {
		if hasAll(r, []string{"-A KUBE-SVC-", "-j KUBE-MARK-MASQ"}) {
			for _, p := range lab.PodNetworks {
				out[i] = strings.Replace(out[i], "! -s "+p.String()+" ", "", 1)
			}
		}
	}
	return out
}

// TestMutations: each mutation of the rules turns cells red, and the rules as they
// are turn none. It is about the table, so one backend is enough.
func TestMutations(t *testing.T) {
	t.Parallel()
	b := backends[slices.IndexFunc(backends, func(b portolan) bool {
		return b.mode == "iptables" && (b.variant.Available() || b.variant == lab.NFT)
	})]
	table, err := readCells(b.mode)
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, b, cellScenario())
	node := c.Node("node1")
	if err := c.stops["node1"](); err != nil { // it would mend the rules
		t.Fatal(err)
	}
	rules, err := c.savedRules(node)
	if err != nil {
		t.Fatal(err)
	}
	c.tryMutations(table, mutations, func(m mutation) error { return c.loadMutated(node, rules, m) })
}

// tryMutations demands that the rules as they are turn no cell red, and that each
// mutation is seen once it is loaded.
func (c *cluster) tryMutations(table cellTable, list []mutation, load func(mutation) error) {
	t := c.t
	t.Helper()
	if red := c.redCells(table, cellRun{tries: quick.tries, most: mostTries, patience: patience}); len(red) > 0 {
		t.Fatalf("the rules as they are turn %d cells red, the first is %s", len(red), slices.Min(slices.Collect(maps.Keys(red))))
	}
	for _, m := range list {
		if err := load(m); err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		red, err := c.seesMutation(table, m)
		t.Logf("%s: %d red", m.name, len(red))
		did.addMutation(c.backend.Name(), m.name, len(red))
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	did.add("mutations", count{scenarios: len(list), flows: len(list), tries: c.tries, packets: c.Packets()})
}

// seesMutation returns the cells that are red. Where rules still lead to what is right
// among others, chance may choose that in each try: then there are more of them.
func (c *cluster) seesMutation(table cellTable, m mutation) (red map[string]bool, err error) {
	for _, more := range []int{1, 8} {
		run := quick
		run.tries *= more
		red = c.redCells(table, run)
		if err = m.seen(red); err == nil {
			break
		}
	}
	return red, err
}

// seen tells whether what had to turn red did.
func (m mutation) seen(red map[string]bool) error {
	if m.sure == "shares" || m.sure == "affinity" {
		if !red[m.sure] {
			return fmt.Errorf("the %s are as they were", m.sure)
		}
		return nil
	}
	for _, proto := range cellProtos {
		for _, family := range cellFamilies {
			key := m.sure + " " + proto + " " + family
			if !red[key] && !m.spares(proto, family) {
				return fmt.Errorf("%s stayed green; %d others are red", key, len(red))
			}
		}
	}
	return nil
}

// spares tells whether a mutation cannot show with a protocol or a family.
func (m mutation) spares(proto, family string) bool {
	switch m.name {
	case "UDP forgotten":
		return proto == "tcp"
	case "node ports not on loopback", "source ranges of pods lost":
		return family == "ipv6"
	}
	return false
}

// savedRules gives the rules of both families.
func (c *cluster) savedRules(node *lab.Node) (map[string][]string, error) {
	out := map[string][]string{}
	for _, program := range []string{"iptables", "ip6tables"} {
		text, err := save(c.t.Context(), node, c.backend.(portolan).variant, program+"-save")
		if err != nil {
			return nil, err
		}
		out[program] = strings.Split(text, "\n")
	}
	return out, nil
}

// loadMutated makes the mutated rules those of the node. A mutation that changes
// nothing is an error: it would test nothing.
func (c *cluster) loadMutated(node *lab.Node, rules map[string][]string, m mutation) error {
	changed := false
	for program, list := range rules {
		mutated := m.edit(list)
		changed = changed || !slices.Equal(mutated, list)
		cmd := node.Command(c.t.Context(), c.backend.(portolan).variant, program+"-restore")
		cmd.Stdin = strings.NewReader(strings.Join(mutated, "\n"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s-restore: %w: %s", program, err, out)
		}
	}
	if !changed {
		return fmt.Errorf("no rule is different")
	}
	// What an earlier mutation did to a connection must not be remembered when a
	// later one happens to have the same ports.
	return forgetFlows(node)
}

// forgetFlows empties the connection tracking of a node.
func forgetFlows(node *lab.Node) error {
	return node.Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

// redCells tries all cells, and what single cells cannot show.
func (c *cluster) redCells(table cellTable, run cellRun) map[string]bool {
	r := c.runCells(table, run)
	c.tries += r.tries
	red := map[string]bool{}
	for cell := range r.failed {
		red[cell.String()] = true
	}
	if c.uneven() {
		red["shares"] = true
	}
	if c.unsteady() {
		red["affinity"] = true
	}
	return red
}

// uneven tells whether two endpoints get far from equal shares of a Service.
func (c *cluster) uneven() bool {
	const connections = 200
	to := netip.AddrPortFrom(cellServices()[0].cluster[0], 80) // clusterip-cluster-local
	answered := 0
	for range connections {
		o := c.try(c.host("pod:visitor"), lab.Call{Proto: "tcp", To: to, Timeout: patience})
		if o.Verdict != lab.Answered {
			return false // cells tell
		}
		if o.Pod == "a" {
			answered++
		}
	}
	return math.Abs(float64(answered)-connections/2) > 6*math.Sqrt(connections*0.5*0.5)
}

// unsteady tells whether one client of a Service with affinity is answered by
// different endpoints.
func (c *cluster) unsteady() bool {
	to := netip.AddrPortFrom(stickyService.cluster[0], 80)
	pods := map[string]bool{}
	for range 30 {
		o := c.try(c.host("client"), lab.Call{Proto: "tcp", To: to, Timeout: patience})
		if o.Verdict != lab.Answered {
			return false
		}
		pods[o.Pod] = true
	}
	return len(pods) > 1
}
