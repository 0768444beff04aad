package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
)

// peerTables are tables as kube-proxy's nftables mode leaves them, cut down to the
// Services of the base cluster. "web" is served as it should be; "sticky" leads to an
// endpoint that is no more. The neighbour's name only looks like kube-proxy's.
const peerTables = `
table ip kube-proxy {
	chain web {
		meta mark set meta mark or 0x4000
		tcp dport 1-65535 dnat to 10.244.1.11:8080
	}
	chain services {
		ip daddr . tcp dport { 10.96.0.10 . 80 } goto web
		ip daddr . tcp dport { 10.96.0.11 . 80 } dnat to 10.244.1.11:9
		fib daddr type local tcp dport 30080 goto web
	}
	chain nat-prerouting {
		type nat hook prerouting priority -100;
		jump services
	}
	chain nat-output {
		type nat hook output priority -100;
		jump services
	}
	chain nat-postrouting {
		type nat hook postrouting priority 100;
		meta mark & 0x4000 != 0 meta mark set meta mark xor 0x4000 masquerade fully-random
	}
}
table ip6 kube-proxy {
	chain services {
		ip6 daddr . tcp dport { fd00:96::10 . 80 } dnat to [fd00:244:1::11]:8080
	}
	chain nat-prerouting {
		type nat hook prerouting priority -100;
		jump services
	}
	chain nat-output {
		type nat hook output priority -100;
		jump services
	}
}
table ip kube-proxy-neighbour {
}
table inet kube-proxy {
}
`

// TestTakeOverOfTables: where kube-proxy ran in nftables mode before, its tables go
// once ours are in force, nothing else goes, and no connection fails meanwhile.
func TestTakeOverOfTables(t *testing.T) {
	t.Parallel()
	b := backends[len(backends)-1]
	c := newCluster(t, b, baseScenario(t))
	for _, n := range c.Nodes() {
		if err := c.stops[n.Name](); err != nil {
			t.Errorf("stop %s: %v", n.Name, err)
		}
		cmd := n.Command(t.Context(), lab.HostVariant, "nft", "-f", "-")
		cmd.Stdin = strings.NewReader(peerTables)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft -f in %s: %v: %s", n.Name, err, out)
		}
		if out, err := n.Command(t.Context(), lab.HostVariant, "nft", "delete table ip portolan; delete table ip6 portolan").CombinedOutput(); err != nil {
			t.Fatalf("nft delete table in %s: %v: %s", n.Name, err, out)
		}
	}
	stale := lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.0.11:80"), Timeout: patience}
	if o := c.try(c.Client, stale); o.Verdict == lab.Answered {
		t.Fatalf("the tables of before are not in force: %v", o)
	}
	traffic := c.traffic()
	for _, n := range c.Nodes() {
		stop, err := b.Start(t.Context(), n, c.dir, c.scenario.args, c.logs[n.Name])
		if err != nil {
			t.Fatal(err)
		}
		c.stops[n.Name] = stop
		tablesBecome(t, n, "table inet kube-proxy\ntable ip kube-proxy-neighbour\ntable ip portolan\ntable ip6 portolan\n")
	}
	if err := traffic(); err != nil {
		t.Error(err)
	}
	for _, f := range c.scenario.flows {
		if err := c.check(f); err != nil {
			t.Errorf("%s\n\t%v", f.line, err)
		}
	}
	c.count("restart", len(c.scenario.flows))
}

// tablesBecome waits until a node has these tables, sorted.
func tablesBecome(t *testing.T, n *lab.Node, want string) {
	t.Helper()
	err := eventually(func() error {
		out, err := n.Command(t.Context(), lab.HostVariant, "nft", "list", "tables").CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft list tables in %s: %v: %s", n.Name, err, out)
		}
		if got := strings.Join(slices.Sorted(strings.Lines(string(out))), ""); got != want {
			return fmt.Errorf("tables of %s:\n%s\nwant:\n%s", n.Name, got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
