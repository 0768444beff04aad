package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/lab"
)

// TestRestart: a proxy that starts again with nothing changed writes nothing, and
// no connection fails while it is away.
func TestRestart(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		b.shims = t.TempDir()
		if err := b.countRestores(); err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, b, baseScenario(t))
		if n := c.writes(t); n == 0 {
			t.Fatal("the first start wrote nothing; the count cannot be right")
		}
		before := c.rules(t)
		open, err := c.Client.Open(t.Context(), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.0.10:80"), Timeout: patience})
		if err != nil {
			t.Fatal(err)
		}
		defer open.Close()

		traffic := c.traffic()
		written := c.writes(t)
		for _, n := range c.Nodes() {
			if err := c.stops[n.Name](); err != nil {
				t.Errorf("stop %s: %v", n.Name, err)
			}
			stop, err := b.Start(t.Context(), n, c.dir, c.scenario.args, c.logs[n.Name])
			if err != nil {
				t.Fatal(err)
			}
			c.stops[n.Name] = stop
		}
		if err := traffic(); err != nil {
			t.Error(err)
		}
		if n := c.writes(t) - written; n != 0 {
			t.Errorf("%d writes by proxies for which nothing had changed", n)
		}
		if o := open.Ask(patience); o.Verdict != lab.Answered {
			t.Errorf("connection from before the restart: %v", o)
		}
		if after := c.rules(t); after != before {
			t.Errorf("the rules are not what they were\nbefore:\n%s\nafter:\n%s", before, after)
		}
		c.count("restart", 3)
	})
}

// traffic calls the Service "web" from three places, see trafficTo.
func (c *cluster) traffic() func() error {
	return c.trafficTo([]route{{"client", "192.0.2.11:30080"}, {"pod:visitor-1", "10.96.0.10:80"}, {"node2", "[fd00:96::10]:80"}})
}

type route struct{ from, to string }

// trafficTo calls again and again until the returned function is called, which tells
// of the first call that failed. The pace leaves the machine to others, too.
func (c *cluster) trafficTo(calls []route) func() error {
	ended := make(chan struct{})
	errs := make([]error, len(calls))
	made := make([]int, len(calls))
	var callers sync.WaitGroup
	for i, call := range calls {
		from := c.host(call.from)
		callers.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			for errs[i] == nil {
				o := from.Dial("tcp", netip.MustParseAddrPort(call.to), patience)
				made[i]++
				if o.Verdict != lab.Answered {
					errs[i] = fmt.Errorf("%s to %s, call %d: %v", call.from, call.to, made[i], o)
				}
				select {
				case <-ended:
					return
				case <-pace.C:
				}
			}
		})
	}
	return func() error {
		close(ended)
		callers.Wait()
		for i := range calls {
			c.tries += made[i]
			if errs[i] != nil {
				return errs[i]
			}
		}
		return nil
	}
}

// rules lists the rules of all nodes and both families.
func (c *cluster) rules(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, n := range c.Nodes() {
		for _, program := range []string{"iptables-save", "ip6tables-save"} {
			text, err := save(t.Context(), n, c.backend.(portolan).variant, program)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&all, "%s %s\n%s", n.Name, program, text)
		}
		if c.backend.(portolan).mode == "nftables" {
			for _, family := range []string{"ip", "ip6"} {
				all.WriteString(c.table(t, n, family))
			}
		}
	}
	return all.String()
}

// writes is how often rules were written so far, on all nodes.
func (c *cluster) writes(t *testing.T) int {
	t.Helper()
	b := c.backend.(portolan)
	if b.mode != "nftables" {
		return b.restores(t)
	}
	sum := 0
	for _, n := range c.Nodes() {
		g, err := generation(n)
		if err != nil {
			t.Fatal(err)
		}
		sum += int(g)
	}
	return sum
}

// countRestores puts programs in front of iptables-restore that keep a count of
// the restores, whatever they are for.
func (p portolan) countRestores() error {
	for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
		for _, family := range []string{"iptables", "ip6tables"} {
			names := []string{family + "-" + string(v) + "-restore"}
			if v == p.variant {
				names = append(names, family+"-restore")
			}
			script := fmt.Sprintf(countingScript, filepath.Join(p.shims, "count"), v, family)
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(p.shims, name), []byte(script), 0o755); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

const countingScript = `#!/bin/sh
echo "$0 $*" >>%s
exec xtables-%s-multi %s-restore "$@"
`

// restores is how often rules were restored so far.
func (p portolan) restores(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.shims, "count"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}
