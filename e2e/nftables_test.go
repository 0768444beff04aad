package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"portolan/kernel/nft"
	"portolan/lab"
)

var counted = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// table lists our table of one family in a node, without counts; empty when there
// is none.
func (c *cluster) table(t *testing.T, n *lab.Node, family string) string {
	t.Helper()
	text, err := listTable(t.Context(), n, family)
	if err != nil {
		t.Fatal(err)
	}
	return counted.ReplaceAllString(text, "counter")
}

func listTable(ctx context.Context, n *lab.Node, family string) (string, error) {
	out, err := n.Command(ctx, lab.HostVariant, "nft", "list", "table", family, "portolan").CombinedOutput()
	if err != nil && strings.Contains(string(out), "No such file or directory") {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("nft list table %s portolan in %s: %w: %s", family, n.Name, err, out)
	}
	return string(out), nil
}

// generation is how often somebody wrote tables in a node.
func generation(n *lab.Node) (g uint32, err error) {
	err = n.Do(func() error {
		conn, err := nft.Dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		g, err = conn.Generation()
		return err
	})
	return g, err
}

// nothingLost: no packet got to the end of a chain that balances.
func (c *cluster) nothingLost() {
	c.t.Helper()
	for _, n := range c.Nodes() {
		for _, family := range []string{"ip", "ip6"} {
			text, err := listTable(context.Background(), n, family)
			if err != nil {
				c.t.Error(err)
				continue
			}
			chain := ""
			for line := range strings.Lines(text) {
				word := strings.Fields(line)
				switch {
				case len(word) == 3 && word[0] == "chain":
					chain = word[1]
				case len(word) == 6 && word[0] == "counter" && word[5] == "drop" && word[2] != "0" &&
					(strings.HasPrefix(chain, "lb-") || strings.HasPrefix(chain, "np-")):
					c.t.Errorf("%s: chain %s of table %s lost %s packets", n.Name, chain, family, word[2])
				}
			}
		}
	}
}

// TestOthersFlush: somebody throws all tables away; the proxies of the nodes are told
// by the kernel and write theirs again, without any change to the Services.
func TestOthersFlush(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		if b.mode != "nftables" {
			continue
		}
		c := newCluster(t, b, baseScenario(t))
		for _, n := range c.Nodes() {
			if out, err := n.Command(t.Context(), lab.HostVariant, "nft", "flush", "ruleset").CombinedOutput(); err != nil {
				t.Fatalf("nft flush ruleset: %v: %s", err, out)
			}
		}
		for _, f := range c.scenario.flows {
			if err := c.answersAgain(f); err != nil {
				t.Errorf("%s\n\t%v", f.line, err)
			}
		}
		c.count("restart", len(c.scenario.flows))
	}
}

// answersAgain polls a flow until somebody answers, and then checks it.
func (c *cluster) answersAgain(f flow) error {
	deadline := time.Now().Add(20 * time.Second)
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for f.verdict == lab.Answered {
		o := c.try(c.host(f.from), lab.Call{Proto: f.proto, From: f.source, To: f.to, Timeout: silence})
		if o.Verdict == lab.Answered {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still %v", o)
		}
		<-pause.C
	}
	return c.check(f)
}
