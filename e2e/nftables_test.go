package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

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
