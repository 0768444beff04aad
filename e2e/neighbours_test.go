package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"portolan/lab"
)

// TestNeighbours: Services beside somebody else's rules, as docs/coexistence.md says.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	for _, s := range readScenariosOf(t, "testdata/neighbours") {
		for _, b := range backends {
			t.Run(s.name+"/"+b.Name(), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, b, s)
				for _, line := range s.neighbour {
					c.neighbour(line)
				}
				c.flows("neighbours")
			})
		}
	}
}

// neighbour runs a command on node1, with the variant of iptables that the proxy uses.
func (c *cluster) neighbour(line string) {
	c.t.Helper()
	variant := c.backend.(portolan).variant
	if variant == lab.HostVariant {
		variant = lab.NFT
	}
	word := strings.Fields(line)
	if out, err := c.Node("node1").Command(c.t.Context(), variant, word[0], word[1:]...).CombinedOutput(); err != nil {
		c.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// TestNodeLocalDNS: a cache that has the address of a Service on the node gets what is
// sent there, as its rules keep that from being tracked; without them the Service does.
func TestNodeLocalDNS(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		node := c.Node("node1")
		vip := netip.MustParseAddrPort("10.96.0.10:80") // of the Service web, in the part of kube-dns
		c.neighbour("ip addr add 10.96.0.10/32 dev lo")
		c.answerAs(node, vip, "cache")
		rules := []string{
			"PREROUTING -d 10.96.0.10/32 -p tcp --dport 80 -j NOTRACK",
			"OUTPUT -d 10.96.0.10/32 -p tcp --dport 80 -j NOTRACK",
			"OUTPUT -s 10.96.0.10/32 -p tcp --sport 80 -j NOTRACK",
		}
		callers := []*lab.Host{&c.Pod("visitor-1").Host, &node.Host}
		answers := func(want string) {
			t.Helper()
			for _, from := range callers {
				o := c.try(from, lab.Call{Proto: "tcp", To: vip, Timeout: patience})
				if isCache := o.Pod == "cache"; o.Verdict != lab.Answered || isCache != (want == "cache") {
					t.Errorf("%s: %v, wanted %s", from.Name, o, want)
				}
			}
		}
		answers("a pod")
		for _, r := range rules {
			c.neighbour("iptables -t raw -A " + r)
		}
		answers("cache")
		for _, r := range rules {
			c.neighbour("iptables -t raw -D " + r)
		}
		answers("a pod")
		c.count("neighbours", 3*len(callers))
	})
}

// answerAs answers TCP on an address of a node, as pods do, until the test ends.
func (c *cluster) answerAs(node *lab.Node, at netip.AddrPort, name string) {
	c.t.Helper()
	var listener net.Listener
	err := node.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	c.t.Cleanup(func() {
		listener.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s %s\n", name, conn.RemoteAddr())
			conn.Close()
		}
	}()
}
