package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/lab"
)

// A repair is promised within a second. A machine that does other things too gets
// more time here; what it took is said.
const (
	promised  = time.Second
	tolerance = 5
)

// harm is something that somebody else does to the rules of a node.
type harm struct {
	what    string
	command []string
	stdin   string
}

// harms are what is done in each mode.
func (c *cluster) harms(n *lab.Node) []harm {
	list := []harm{{what: "conntrack -F", command: []string{"conntrack", "-F"}}}
	if c.backend.(portolan).mode == "nftables" {
		table := c.table(c.t, n, "ip")
		balance := regexp.MustCompile(`(?m)^\tchain (lb-\d\S*)`).FindStringSubmatch(table)
		element := regexp.MustCompile(`10\.96\.0\.10 \. tcp \. 80 : [0-9a-f:]+`).FindString(table)
		if balance == nil || element == "" {
			c.t.Fatalf("no rules as expected:\n%s", table)
		}
		return append(list,
			harm{what: "one element", command: []string{"nft", "delete", "element", "ip", "portolan", "service-ips", "{ " + element + " }"}},
			harm{what: "what leads to chains", command: []string{"nft", "flush", "map", "ip", "portolan", "balancers"}},
			harm{what: "one jump", command: []string{"nft", "flush", "chain", "ip", "portolan", "nat-prerouting"}},
			harm{what: "one rule", command: []string{"nft", "flush", "chain", "ip", "portolan", balance[1]}},
			harm{what: "the table", command: []string{"nft", "delete", "table", "ip", "portolan"}},
			harm{what: "the table, made again", command: []string{"nft", "-f", "-"}, stdin: "delete table ip portolan\ntable ip portolan { chain layout-3 { }; }\n"},
			harm{what: "nft flush ruleset", command: []string{"nft", "flush", "ruleset"}})
	}
	list = append(list,
		harm{what: "one jump", command: []string{"iptables", "-t", "nat", "-D", "PREROUTING", "1"}},
		harm{what: "one jump of filter", command: []string{"iptables", "-D", "FORWARD", "1"}},
		harm{what: "one rule", command: []string{"iptables", "-t", "nat", "-D", "KUBE-SERVICES", "1"}},
		harm{what: "one chain", command: []string{"iptables", "-t", "nat", "-F", "KUBE-NODEPORTS"}},
		harm{what: "iptables -F -t nat", command: []string{"iptables", "-F", "-t", "nat"}},
		harm{what: "iptables -F", command: []string{"iptables", "-F"}},
		harm{what: "an empty table restored", command: []string{"iptables-restore"}, stdin: "*nat\nCOMMIT\n"})
	if c.backend.(portolan).variant == lab.NFT {
		list = append(list, harm{what: "nft flush ruleset", command: []string{"nft", "flush", "ruleset"}})
	}
	return list
}

// do does it.
func (h harm) do(c *cluster, n *lab.Node) error {
	cmd := n.Command(c.t.Context(), c.backend.(portolan).variant, h.command[0], h.command[1:]...)
	cmd.Stdin = strings.NewReader(h.stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", h.command, err, out)
	}
	return nil
}

// TestRepair: whatever somebody else takes away of the rules is put back, and said
// once; the rules are then what they were. Meanwhile clients call all the time.
func TestRepair(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		n := c.Node("node1")
		whole := c.state(t, n)
		clients := c.callers(silence, route{"client", "10.96.0.10:80"}, route{"pod:visitor-1", "10.96.0.10:80"}, route{"node1", "10.96.0.10:80"})
		for _, h := range c.harms(n) {
			told := c.repairsTold(n)
			start := time.Now()
			if err := h.do(c, n); err != nil {
				t.Fatal(err)
			}
			done := time.Now()
			took, err := c.returnsTo(t, n, whole)
			if err != nil {
				t.Fatalf("%s: %v", h.what, err)
			}
			t.Logf("%-26s in %4d ms, repaired %4d ms later", h.what, done.Sub(start).Milliseconds(), took.Milliseconds())
			if took > tolerance*promised {
				t.Errorf("%s: repaired after %v", h.what, took)
			}
			if err := clients.calm(); err != nil {
				t.Errorf("%s: %v", h.what, err)
			}
			if err := c.tells(n, told, h.what != "conntrack -F"); err != nil {
				t.Errorf("%s: %v", h.what, err)
			}
			t.Logf("%-26s %s", "", clients.report())
		}
		clients.stop()
		for _, f := range c.scenario.flows {
			if err := c.check(f); err != nil {
				t.Errorf("%s\n\t%v", f.line, err)
			}
		}
		c.count("restart", len(c.scenario.flows))
	})
}

// repairsTold is how often the proxy of a node said that it put something back.
func (c *cluster) repairsTold(n *lab.Node) int {
	return strings.Count(c.logs[n.Name].String(), "reason=RulesRepaired")
}

// tells waits until the proxy of a node has said more often than before that it put
// something back; one for which there was nothing to do says nothing.
func (c *cluster) tells(n *lab.Node, before int, harmed bool) error {
	if !harmed {
		if more := c.repairsTold(n) - before; more > 0 {
			return fmt.Errorf("%d repairs of nothing", more)
		}
		return nil
	}
	return eventually(func() error {
		if c.repairsTold(n) == before {
			return errors.New("nothing was said of the repair")
		}
		return nil
	})
}

// returnsTo waits until the rules of a node are those again, and tells how long that
// took.
func (c *cluster) returnsTo(t *testing.T, n *lab.Node, whole string) (took time.Duration, err error) {
	t.Helper()
	start := time.Now()
	err = eventually(func() error {
		took = time.Since(start) // the listing itself takes its time
		if is := c.state(t, n); is != whole {
			return fmt.Errorf("still after %v:\n%s\nwant\n%s", took, is, whole)
		}
		return nil
	})
	return took, err
}

// state lists the rules of a node, so that two states with the same meaning look the
// same.
func (c *cluster) state(t *testing.T, n *lab.Node) string {
	t.Helper()
	var all strings.Builder
	if c.backend.(portolan).mode == "nftables" {
		for _, family := range []string{"ip", "ip6"} {
			all.WriteString(sortElements(c.table(t, n, family)))
		}
		return all.String()
	}
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		text, err := save(t.Context(), n, c.backend.(portolan).variant, program)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s\n%s", program, sortChains(text))
	}
	return all.String()
}

var elements = regexp.MustCompile(`elements = \{[^}]*\}`)

// sortElements puts the elements of each set, and the sets and chains of a table, in
// order.
func sortElements(table string) string {
	table = elements.ReplaceAllStringFunc(table, func(block string) string {
		list := strings.Split(strings.Trim(strings.TrimPrefix(block, "elements ="), " {}"), ",")
		for i := range list {
			list[i] = strings.Join(strings.Fields(list[i]), " ")
		}
		slices.Sort(list)
		return "elements = { " + strings.Join(list, ", ") + " }"
	})
	parts := strings.Split(table, "\n\n")
	for i, part := range parts {
		parts[i] = strings.Trim(strings.TrimSuffix(part, "}\n"), "\n")
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// sortChains puts the declarations of chains in order, and the chains; the rules of
// each stay in theirs.
func sortChains(text string) string {
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = line
		case line != "COMMIT":
			out = append(out, table+" "+line)
		}
	}
	chain := func(line string) string {
		return strings.Join(strings.Fields(line)[:min(3, len(strings.Fields(line)))], " ")
	}
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(chain(a), chain(b)) })
	return strings.Join(out, "\n") + "\n"
}

// callers call all the time, whatever the answer.
type callers struct {
	mu      sync.Mutex
	routes  []route
	made    []int
	failed  []int
	first   []time.Time // of the failures in a row
	good    []int       // in a row
	longest []time.Duration
	verdict map[string]int

	ended chan struct{}
	over  sync.WaitGroup
}

// every is the pause between two calls of one caller, and the least between two
// questions of eventually.
const every = 5 * time.Millisecond

// callers starts one caller a route, who waits so long for an answer.
func (c *cluster) callers(timeout time.Duration, routes ...route) *callers {
	k := len(routes)
	s := &callers{routes: routes, made: make([]int, k), failed: make([]int, k), first: make([]time.Time, k), good: make([]int, k),
		longest: make([]time.Duration, k), verdict: map[string]int{}, ended: make(chan struct{})}
	for i, r := range routes {
		from, to := c.host(r.from), netip.MustParseAddrPort(r.to)
		s.over.Go(func() {
			pace := time.NewTicker(every)
			defer pace.Stop()
			for {
				began := time.Now()
				s.note(i, began, from.Dial("tcp", to, timeout))
				select {
				case <-s.ended:
					return
				case <-pace.C:
				}
			}
		})
	}
	c.t.Cleanup(s.stop)
	return s
}

func (s *callers) note(i int, began time.Time, o lab.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[i]++
	if o.Verdict == lab.Answered {
		if s.good[i]++; s.good[i] == 1 && !s.first[i].IsZero() {
			s.longest[i] = max(s.longest[i], time.Since(s.first[i]))
			s.first[i] = time.Time{}
		}
		return
	}
	s.failed[i]++
	s.verdict[o.Verdict.String()]++
	if s.good[i] = 0; s.first[i].IsZero() {
		s.first[i] = began
	}
}

// calm waits until every caller was answered ten times in a row.
func (s *callers) calm() error {
	err := eventually(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if slices.Min(s.good) < 10 {
			return errors.New("a caller is still not answered")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w: %s", err, s.report())
	}
	return nil
}

// report says what failed since the last report, and for how long at most.
func (s *callers) report() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for i, r := range s.routes {
		fmt.Fprintf(&b, "%s: %d of %d failed, %d ms at most; ", r.from, s.failed[i], s.made[i], s.longest[i].Milliseconds())
		s.made[i], s.failed[i], s.longest[i] = 0, 0, 0
		s.good[i] = 0
	}
	fmt.Fprint(&b, s.verdict)
	clear(s.verdict)
	return b.String()
}

// stop ends the calls.
func (s *callers) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.ended:
		return
	default:
		close(s.ended)
	}
}
