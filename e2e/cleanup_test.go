package e2e

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// foreignRules are what others have on a node: a firewall's chain, a CNI's
// masquerading, an administrator's rules before and after them, and chains whose
// names only look like those of Services.
const foreignRules = `*filter
:ADMIN - [0:0]
:KUBELET-LOOKALIKE - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j ADMIN
-A FORWARD -m comment --comment "not a KUBE-SERVICES rule" -j ADMIN
-A FORWARD -j KUBELET-LOOKALIKE
-A ADMIN -p tcp -m tcp --dport 9 -j DROP
-A KUBELET-LOOKALIKE -p udp -m udp --dport 9 -j DROP
COMMIT
*nat
:CNI-MASQ - [0:0]
-A POSTROUTING -j CNI-MASQ
-A CNI-MASQ -s 10.99.0.0/16 ! -d 10.99.0.0/16 -j MASQUERADE
COMMIT
*mangle
-A PREROUTING -p tcp -m tcp --dport 9 -j MARK --set-xmark 0x1/0xffffffff
COMMIT
`

// TestCleanup: other people's rules and their order survive the proxy and cleanup;
// cleanup leaves nothing but them, does it twice as well as once, and says what it
// would do without doing it.
func TestCleanup(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		s := baseScenario(t)
		foreign := map[string][]string{}
		b.before = func(ctx context.Context, n *lab.Node) error {
			for _, program := range []string{"iptables", "ip6tables"} {
				if err := b.addForeign(ctx, n, program); err != nil {
					return err
				}
			}
			return nil
		}
		c := newCluster(t, b, s)
		web := netip.MustParseAddrPort("10.96.0.10:80")
		if o := c.try(c.Client, lab.Call{Proto: "tcp", To: web, Timeout: patience}); o.Verdict != lab.Answered {
			t.Errorf("Service beside foreign rules: %v", o)
		}
		want := c.foreignOnly(t)
		for where, rules := range want {
			if len(rules) < 6 {
				t.Fatalf("%s: the foreign rules are not all there: %q", where, rules)
			}
			foreign[where] = rules
		}
		for _, n := range c.Nodes() {
			if err := c.stops[n.Name](); err != nil {
				t.Errorf("stop %s: %v", n.Name, err)
			}
		}
		all := c.rules(t)
		c.cleanup(t, "--dry-run")
		if c.rules(t) != all {
			t.Error("cleanup --dry-run changed rules")
		}
		for round := range 2 {
			c.cleanup(t)
			if rules := c.rules(t); strings.Contains(rules, "table ip") {
				t.Errorf("a table is left after cleanup %d:\n%s", round+1, rules)
			}
			for where, rules := range c.ruleLists(t) {
				if !slices.Equal(rules, foreign[where]) {
					t.Errorf("%s after cleanup %d:\n%s\nwant:\n%s", where, round+1, strings.Join(rules, "\n"), strings.Join(foreign[where], "\n"))
				}
			}
		}
		if o := c.try(c.Client, lab.Call{Proto: "tcp", To: web, Timeout: patience}); o.Verdict != lab.Unreachable {
			t.Errorf("Service after cleanup: %v", o)
		}
		c.count("cleanup", 2)
	})
}

// addForeign feeds the foreign rules to one family of a node.
func (p portolan) addForeign(ctx context.Context, n *lab.Node, program string) error {
	rules := foreignRules
	if program == "ip6tables" {
		rules = strings.ReplaceAll(rules, "10.99.0.0/16", "fd00:99::/32")
	}
	cmd := n.Command(ctx, p.variant, program+"-restore", "--noflush")
	cmd.Stdin = strings.NewReader(rules)
	return cmd.Run()
}

// cleanup runs the command in every node.
func (c *cluster) cleanup(t *testing.T, args ...string) {
	t.Helper()
	for _, n := range c.Nodes() {
		out, err := c.backend.(portolan).command(t.Context(), n, append([]string{"cleanup"}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("cleanup %v in %s: %v\n%s", args, n.Name, err, out)
		}
	}
}

// foreignOnly lists the rules and chains that are not a Service proxy's.
func (c *cluster) foreignOnly(t *testing.T) map[string][]string {
	lists := c.ruleLists(t)
	for where, rules := range lists {
		lists[where] = slices.DeleteFunc(rules, func(rule string) bool {
			return !strings.Contains(rule, "not a KUBE-") && strings.Contains(rule, "KUBE-")
		})
	}
	return lists
}

// ruleLists are the rules and chains, without the built-in chains, of each node and
// family. KUBE-FIREWALL is the kubelet's too and belongs to nobody here.
func (c *cluster) ruleLists(t *testing.T) map[string][]string {
	t.Helper()
	lists := map[string][]string{}
	where, table := "", ""
	for line := range strings.Lines(c.rules(t)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "node"):
			where = line
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.Contains(line, "KUBE-FIREWALL"):
		case strings.HasPrefix(line, "-A "), strings.HasPrefix(line, ":") && strings.HasSuffix(line, " -"):
			lists[where] = append(lists[where], table+" "+line)
		}
	}
	// Tables and chains come in the order in which they were made; rules are in
	// their chain's own.
	for _, list := range lists {
		slices.SortStableFunc(list, func(a, b string) int { return strings.Compare(chainOf(a), chainOf(b)) })
	}
	return lists
}

// chainOf is "TABLE CHAIN" of a line of ruleLists; declarations come first.
func chainOf(line string) string {
	word := strings.Fields(line)
	if strings.HasPrefix(word[1], ":") {
		return word[0] + " " + word[1]
	}
	return word[0] + " " + word[2]
}
