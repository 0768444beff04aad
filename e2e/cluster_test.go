package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan/e2e/program"
	"portolan/lab"
)

// cluster is a lab with a backend in every node and the manifests they follow.
type cluster struct {
	*lab.Lab
	t        *testing.T
	backend  Backend
	scenario scenario
	dir      string // of manifests
	logs     map[string]*program.Log
	stops    map[string]func() error
	tries    int
}

// newCluster builds the lab of a scenario and starts a backend in every node. All
// of it goes away with the test.
func newCluster(t *testing.T, b Backend, s scenario) *cluster {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and their rules need root")
	}
	if p, is := b.(portolan); is && p.variant != lab.HostVariant && !p.variant.Available() {
		t.Skipf("no iptables of variant %s on this machine", p.variant)
	}
	s.topology.PodNetwork = s.podnet != ""
	s.topology.SCTP = slices.ContainsFunc(s.flows, func(f flow) bool { return f.proto == "sctp" }) && lab.HasSCTP()
	l, err := lab.New(s.topology)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{Lab: l, t: t, backend: b, scenario: s, dir: t.TempDir(),
		logs: map[string]*program.Log{}, stops: map[string]func() error{}}
	t.Cleanup(c.end)
	c.apply(map[string][]byte{"services.yaml": s.manifests, "nodes.yaml": s.nodeManifests()})

	var starting sync.WaitGroup
	errs := make([]error, len(l.Nodes()))
	stops := make([]func() error, len(l.Nodes()))
	for i, n := range l.Nodes() {
		log := &program.Log{}
		c.logs[n.Name] = log
		starting.Go(func() {
			if s.podnet != "" {
				if errs[i] = startPodNet(t, n, s.podnet, c.dir, log); errs[i] != nil {
					return
				}
			}
			stops[i], errs[i] = b.Start(t.Context(), n, c.dir, s.args, log)
		})
	}
	starting.Wait()
	for i, n := range l.Nodes() {
		if errs[i] != nil {
			t.Fatalf("start %s: %v", b.Name(), errs[i])
		}
		c.stops[n.Name] = stops[i]
	}
	if s.podnet != "" {
		if err := l.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// often has a proxy of any mode wait no longer than this between two writes.
func often(apart string) []string {
	return []string{"--iptables-min-sync-period", apart, "--ipvs-min-sync-period", apart}
}

// eachBackend runs a test against every backend, beside each other.
func eachBackend(t *testing.T, test func(*testing.T, portolan)) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.Name(), func(t *testing.T) {
			t.Parallel()
			test(t, b)
		})
	}
}

// baseScenario is the cluster of tests that are more than a table of flows.
func baseScenario(t *testing.T) scenario {
	t.Helper()
	data, err := os.ReadFile("testdata/base/base.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseScenario("base", data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// apply writes manifests for the backends to follow.
func (c *cluster) apply(files map[string][]byte) {
	c.t.Helper()
	if err := writeManifests(c.dir, files); err != nil {
		c.t.Fatal(err)
	}
}

// host finds a caller by the name it has in flow tables.
func (c *cluster) host(name string) *lab.Host {
	if name == "client" {
		return c.Client
	}
	if pod, is := strings.CutPrefix(name, "pod:"); is {
		if p := c.Pod(pod); p != nil {
			return &p.Host
		}
	} else if n := c.Node(name); n != nil {
		return &n.Host
	}
	c.t.Fatalf("nobody is called %q", name)
	return nil
}

// pods are those of the scenario.
func (c *cluster) pods() (list []*lab.Pod) {
	for _, spec := range c.scenario.topology.Pods {
		list = append(list, c.Pod(spec.Name))
	}
	return list
}

// try makes one call and counts it.
func (c *cluster) try(from *lab.Host, call lab.Call) lab.Outcome {
	c.tries++
	return from.Try(call)
}

// count books what the cluster did under a group.
func (c *cluster) count(group string, flows int) {
	did.add(group+"/"+c.backend.Name(), count{scenarios: 1, flows: flows, tries: c.tries, packets: c.Packets()})
}

// end takes the cluster down; after a failure it shows what the backends said.
func (c *cluster) end() {
	if b, is := c.backend.(portolan); is && b.mode == "nftables" {
		c.nothingLost()
	}
	if c.t.Failed() {
		for name, log := range c.logs {
			c.t.Logf("the proxy of %s said:\n%s", name, log.Tail(30))
		}
	}
	if err := c.Lab.Close(); err != nil {
		c.t.Error(err)
	}
}

// entry is the node by which a call enters the cluster.
func (c *cluster) entry(f flow) *lab.Node {
	if n := c.Node(f.from); n != nil {
		return n
	}
	if pod, is := strings.CutPrefix(f.from, "pod:"); is {
		// A node's own address takes the pod's packet to that node.
		if n := c.owner(f.to.Addr()); n != nil {
			return n
		}
		return c.Pod(pod).Node
	}
	if n := c.owner(f.to.Addr()); n != nil {
		return n
	}
	best := lab.RouteSpec{}
	for _, r := range c.scenario.topology.Routes {
		if r.To.Contains(f.to.Addr()) && (best.Node == "" || r.To.Bits() > best.To.Bits()) {
			best = r
		}
	}
	n := c.Node(best.Node)
	if n == nil {
		c.t.Fatalf("%s: no node is the way to %v", f.line, f.to)
	}
	return n
}

// owner is the node that has an address, on the switch or on its bridge.
func (c *cluster) owner(addr netip.Addr) *lab.Node {
	for _, n := range c.Nodes() {
		for _, own := range append(n.Bridge[:len(n.Bridge):len(n.Bridge)], n.Addrs...) {
			if own == addr {
				return n
			}
		}
	}
	return nil
}

// seen is the source address that the pod of an outcome must have seen.
func (c *cluster) seen(f flow, o lab.Outcome) (netip.Addr, error) {
	family := f.to.Addr()
	pod := c.Pod(o.Pod)
	if pod == nil {
		return netip.Addr{}, fmt.Errorf("no pod is called %q", o.Pod)
	}
	bridge := func(n *lab.Node) netip.Addr {
		for _, a := range n.Bridge {
			if a.Is4() == family.Is4() {
				return a
			}
		}
		return netip.Addr{}
	}
	switch f.seen {
	case "kept":
		return o.Local.Addr(), nil
	case "hairpin":
		if f.from == "pod:"+o.Pod {
			return bridge(pod.Node), nil
		}
		return o.Local.Addr(), nil
	case "masq":
		entry := c.entry(f)
		if pod.Node == entry {
			return bridge(entry), nil
		}
		if c.scenario.podnet == "vxlan" {
			return bridge(entry).Prev(), nil // of the vxlan device
		}
		return entry.Addr(family), nil
	}
	return netip.ParseAddr(f.seen)
}
