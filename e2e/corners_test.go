package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/e2e/program"
	"portolan/lab"
)

// TestD36HostNetworkEndpoint: an endpoint may be a process of the node itself. Also
// then it can call itself by its Service.
func TestD36HostNetworkEndpoint(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		node := c.Node("node1")
		if err := serve(t, node, 7777); err != nil {
			t.Fatal(err)
		}
		c.services = []byte(strings.ReplaceAll(hostNetworkService, "ADDRESS", node.Addrs[0].String()))
		if _, err := c.drain(); err != nil {
			t.Fatal(err)
		}
		for _, f := range []struct{ from, to, seen string }{
			{"node1", "10.96.3.40:80", "192.0.2.11"},
			{"pod:visitor", "10.96.3.40:80", "10.244.1.50"},
			{"client", "10.96.3.40:80", "192.0.2.200"}, // masquerade is for what leaves the node
			{"client", "192.0.2.11:31040", "192.0.2.200"},
			{"pod:visitor", "192.0.2.11:31040", "10.244.1.50"},
			{"node1", "192.0.2.11:31040", "192.0.2.11"},
		} {
			o := c.try(c.host(f.from), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort(f.to), Timeout: patience})
			if o.Verdict != lab.Answered || o.Pod != node.Name || o.Seen.Addr().String() != f.seen {
				t.Errorf("%s to %s: %v, want %s, which saw %s", f.from, f.to, o, node.Name, f.seen)
			}
		}
		c.count("changes", 6)
	})
}

const hostNetworkService = `---
apiVersion: v1
kind: Service
metadata: {name: host, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.3.40
  clusterIPs: [10.96.3.40]
  ipFamilies: [IPv4]
  ports:
  - {name: p0, protocol: TCP, port: 80, targetPort: 7777, nodePort: 31040}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: host-4, namespace: default, labels: {kubernetes.io/service-name: host}}
addressType: IPv4
ports: [{name: p0, protocol: TCP, port: 7777}]
endpoints: [{addresses: [ADDRESS], nodeName: node1, conditions: {ready: true}}]
`

// serve answers on a port of a node as pods do.
func serve(t *testing.T, node *lab.Node, port uint16) error {
	return node.Do(func() error {
		listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				fmt.Fprintf(conn, "%s %s\n", node.Name, conn.RemoteAddr())
				conn.Close()
			}
		}()
		return nil
	})
}

// TestD38LoadBalancerAddressOnTheNode: where the load balancer's address is one of
// the node's, a process there calls it from itself. That is let in exactly when the
// source ranges hold the node.
func TestD38LoadBalancerAddressOnTheNode(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		inside, outside := web("lb", "a", "x"), web("lb", "a", "x")
		inside.ranges = []string{"192.0.2.11/32", "2001:db8::11/128"}
		outside.name, outside.cluster, outside.external = "other", pair("10.96.3.%d", "fd00:96::3%02x", 11), pair("198.51.100.%d", "2001:db8:198::%x", 211)
		outside.nodePort, outside.ranges = 31010, []string{"192.0.2.12/32", "2001:db8::12/128"}
		c.services = append(inside.yaml(), outside.yaml()...)
		if _, err := c.drain(); err != nil {
			t.Fatal(err)
		}
		for family := range inside.external {
			for _, m := range []manifest{inside, outside} {
				addr := m.external[family]
				if out, err := c.Node("node1").Command(t.Context(), lab.HostVariant, "ip", "addr", "add", addr.String(), "dev", "lo", "nodad").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				call := lab.Call{Proto: "tcp", From: addr, To: netip.AddrPortFrom(addr, 80), Timeout: patience}
				want := lab.Answered
				if m.name == "other" {
					want, call.Timeout = lab.TimedOut, slowRefusal
				}
				if o := c.try(c.host("node1"), call); o.Verdict != want {
					t.Errorf("%s: %v, want %v", addr, o, want)
				}
			}
		}
		c.count("changes", 4)
	})
}

// TestD43EstablishedConnectionsGoOn: open connections live through endpoints that
// come and go, through a flush of all rules and their repair, and through a restart.
func TestD43EstablishedConnectionsGoOn(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		c.services = web("lb", "a").yaml()
		if _, err := c.drain(); err != nil {
			t.Fatal(err)
		}
		var open []*lab.Conn
		for _, p := range []*probe{call("pod:visitor", "tcp", "10.96.3.10:80"), call("client", "tcp", "192.0.2.11:31000"), call("client", "tcp", "[2001:db8:198::d2]:80"),
			call("node1", "tcp", "[fd00:96::30a]:80")} {
			conn, err := c.host(p.from).Open(t.Context(), lab.Call{Proto: p.proto, To: p.to, Timeout: patience})
			if err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			defer conn.Close()
			open = append(open, conn)
		}
		goOn := func(what string) {
			for i, conn := range open {
				if o := conn.Ask(patience); o.Verdict != lab.Answered || o.Pod != "a" {
					t.Errorf("%s: connection %d: %v", what, i, o)
				}
			}
		}
		goOn("at first")
		for _, pods := range [][]string{{"a", "x"}, {"x", "a", "b"}, {"a"}} {
			c.services = web("lb", pods...).yaml()
			if _, err := c.drain(); err != nil {
				t.Fatal(err)
			}
			goOn(fmt.Sprint(pods))
		}
		c.flushRules(c.Node("node1"))
		if err := c.settles("10.96.3.10:80", "answered a"); err != nil {
			t.Errorf("after a flush: %v", err)
		}
		goOn("a flush of the rules")
		if err := c.stops["node1"](); err != nil {
			t.Error(err)
		}
		stop, err := b.Start(t.Context(), c.Node("node1"), c.dir, c.scenario.args, c.logs["node1"])
		if err != nil {
			t.Fatal(err)
		}
		c.stops["node1"] = stop
		goOn("a restart")
		c.count("changes", 6)
	})
}

// flushRules takes all rules of a node away, as other programs do by mistake.
func (c *changer) flushRules(node *lab.Node) {
	commands := [][]string{{"nft", "flush", "ruleset"}}
	if c.mode() == "iptables" {
		commands = nil
		for _, program := range families {
			for _, table := range []string{"nat", "filter"} {
				commands = append(commands, []string{program, "-t", table, "-F"})
			}
		}
	}
	for _, words := range commands {
		if out, err := node.Command(c.t.Context(), c.backend.(portolan).variant, words[0], words[1:]...).CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %v: %s", words, err, out)
		}
	}
}

// TestD42KilledBetweenTwoWrites: a proxy that dies after the first table of a change
// leaves what was or what will be, and the next one finishes the change.
func TestD42KilledBetweenTwoWrites(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode != "iptables" {
			t.Skip("only iptables writes a change in more than one step")
		}
		b.shims = t.TempDir()
		armed := filepath.Join(b.shims, "armed")
		for _, family := range families {
			script := fmt.Sprintf(killingScript, armed, b.variant, family)
			for _, name := range []string{family + "-restore", family + "-" + string(b.variant) + "-restore"} {
				if err := os.WriteFile(filepath.Join(b.shims, name), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := changeScenario()
		s.args = []string{"--iptables-min-sync-period", "5ms"}
		c := newCluster(t, b, s)
		traffic := c.trafficTo([]route{{"client", "198.51.100.249:80"}, {"pod:visitor", "10.96.3.90:80"}})
		change := func(pods ...string) { c.apply(map[string][]byte{"changing.yaml": web("clusterip", pods...).yaml()}) }
		change()
		if err := c.settles("10.96.3.10:80", "refused"); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			pods          []string
			before, after string
		}{{[]string{"a"}, "refused", "answered a"}, {nil, "answered a", "refused"}} {
			if err := os.WriteFile(armed, []byte("node1"), 0o644); err != nil {
				t.Fatal(err)
			}
			change(step.pods...)
			if err := c.settlesFrom("node1", "127.0.0.1:10256", "refused"); err != nil {
				t.Fatalf("the proxy was not killed: its healthz server: %v", err)
			}
			if err := c.stops["node1"](); err == nil {
				t.Error("the proxy ended well")
			}
			got := outcomeText(c.try(c.host("pod:visitor"), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.3.10:80"), Timeout: patience}))
			if got != step.before && got != step.after {
				t.Errorf("in between: %s, want %s or %s", got, step.before, step.after)
			}
			stop, err := b.Start(t.Context(), c.Node("node1"), c.dir, c.scenario.args, c.logs["node1"])
			if err != nil {
				t.Fatal(err)
			}
			c.stops["node1"] = stop
			if err := c.settles("10.96.3.10:80", step.after); err != nil {
				t.Errorf("after a restart: %v", err)
			}
		}
		if err := traffic(); err != nil {
			t.Errorf("meanwhile: %v", err)
		}
		c.count("changes", 2)
	})
}

// The first armed restore of node1 that writes two tables writes one, and kills who
// asked for it.
const killingScript = `#!/bin/sh
input=$(mktemp)
trap 'rm -f "$input"' EXIT
cat >"$input"
if [ "${XTABLES_LOCKFILE##*.}" = node1 ] && [ "$(grep -c ^COMMIT "$input")" -gt 1 ] && mv %[1]s "$input.armed" 2>/dev/null; then
	rm -f "$input.armed"
	sed '/^COMMIT/q' "$input" | xtables-%[2]s-multi %[3]s-restore "$@"
	kill -9 $PPID
	exit 1
fi
xtables-%[2]s-multi %[3]s-restore "$@" <"$input"
`

// TestD13OneFamily: a node whose iptables can do one family serves that; one that
// can do none says so and ends.
func TestD13OneFamily(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode != "iptables" {
			t.Skip("nftables mode needs one program for both families")
		}
		b.shims = t.TempDir()
		broken := func(family string) {
			for _, program := range []string{family, family + "-" + string(b.variant)} {
				for _, suffix := range []string{"-save", "-restore"} {
					if err := os.WriteFile(filepath.Join(b.shims, program+suffix), []byte("#!/bin/sh\necho cannot initialize >&2\nexit 3\n"), 0o755); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		broken("ip6tables")
		c := newCluster(t, b, changeScenario())
		if o := c.try(c.Client, lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("198.51.100.249:80"), Timeout: patience}); o.Verdict != lab.Answered {
			t.Error(o)
		}
		if log := c.logs["node1"].Tail(50); !strings.Contains(log, "an IP family is left out") {
			t.Errorf("nothing is said about the other family:\n%s", log)
		}
		broken("iptables")
		if err := c.stops["node1"](); err != nil {
			t.Fatal(err)
		}
		var log program.Log
		if _, err := b.Start(t.Context(), c.Node("node1"), c.dir, nil, &log); err == nil || !strings.Contains(log.Tail(5), "cannot initialize") {
			t.Errorf("without any family: %v\n%s", err, log.Tail(5))
		}
		c.count("changes", 2)
	})
}
