package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan/lab"
)

// sequence is a story of changes to a few Services, with callers who call all the
// time.
type sequence struct {
	name   string
	probes []*probe
	// before is what the probes meet ahead of the first step.
	before []string
	steps  []step
}

// step is one change.
type step struct {
	what     string
	services []manifest
	nodes    []byte // Node objects from now on; nil for those of before
	extra    []byte // more manifests
	// want is what each probe meets afterwards: "answered a,b", "refused", "timeout",
	// "unreachable"; on the way, that of before or this, and nothing else.
	want []string
	// chains are those written on node1; see expandChains.
	chains string
}

// nothing is a file without objects. One without a byte could be half written.
var nothing = []byte("# nothing\n")

// changer is a cluster whose Services change, in the standard layout of iptables mode
// with a record of what is written.
type changer struct {
	*cluster
	record recorder
	marks  int // see drain and put
	// What the manifests say at present: Services with their slices, and Nodes.
	services, nodes []byte
	ports           atomic.Uint32 // of UDP callers so far
}

func newChanger(t *testing.T, b portolan, s scenario) *changer {
	c := &changer{}
	if b.isStandard() {
		c.record = b.recordRestores(t)
	}
	s.args = append(s.args, often("5ms")...)
	c.cluster = newCluster(t, b, s)
	c.services, c.nodes = nothing, s.nodeManifests()
	c.apply(map[string][]byte{"nodes.yaml": nothing})
	return c
}

// run plays a sequence, and then takes its Services away.
func (c *changer) run(s sequence) error {
	for i, p := range s.probes {
		p.host, p.ports, p.pods, p.refuses = c.host(p.from), &c.ports, c.pods(), c.mode() == "ipvs"
		p.new, p.sticky = outcomes(s.before[i])
		p.inForce()
	}
	if _, err := c.drain(); err != nil { // what was before is gone
		return err
	}
	for _, n := range c.Nodes() {
		if err := forgetFlows(n); err != nil {
			return err
		}
	}
	c.ports.Store(0)
	ended := make(chan struct{})
	var calling sync.WaitGroup
	for _, p := range s.probes {
		calling.Go(func() { p.run(ended) })
	}
	err := c.calls(s.probes)
	for _, st := range s.steps {
		if err != nil {
			break
		}
		if err = c.step(s.probes, st); err != nil {
			err = fmt.Errorf("%s: %s: %w", s.name, st.what, err)
		}
	}
	close(ended)
	calling.Wait()
	for _, p := range s.probes {
		c.tries += p.calls
	}
	c.nodes, c.services = c.scenario.nodeManifests(), nothing
	return err
}

// step makes one change and waits until it is in force, then until every probe has
// seen all that it should.
func (c *changer) step(probes []*probe, st step) error {
	for i, p := range probes {
		p.begin(st.want[i])
	}
	c.services = slices.Concat(nothing, st.extra)
	for _, m := range st.services {
		c.services = append(c.services, m.yaml()...)
	}
	if st.nodes != nil {
		c.nodes = st.nodes
	}
	if err := c.inForce(st.chains); err != nil {
		return err
	}
	for _, p := range probes {
		p.inForce()
	}
	return c.calls(probes)
}

// put writes the present manifests, in one file so that they come together. With
// them comes a companion, a Service that only shows that they are in force.
func (c *changer) put() {
	if !c.recorded() {
		c.marks++
	}
	c.apply(map[string][]byte{"changing.yaml": slices.Concat(c.services, c.companion().yaml(), c.nodes)})
}

// companion shows a mark: where there is a record by its port, which that tells; else
// by its address and endpoint, which answers.
func (c *changer) companion() manifest {
	m := manifest{name: "companion", kind: "clusterip", policy: "Cluster", port: 80, cluster: pair("10.96.3.%d", "fd00:96::3%02x", 2)}
	if c.recorded() {
		m.port = 1000 + c.marks
		return m
	}
	m.name = []string{"companion-a", "companion-b"}[c.marks%2]
	m.cluster = pair("10.96.3.%d", "fd00:96::3%02x", 2+c.marks%2)
	return m.with([]string{"a", "b"}[c.marks%2])
}

// inForce puts the manifests and waits until node1 has written these chains, and no
// others.
func (c *changer) inForce(chains string) error {
	if c.recorded() {
		c.put()
		return c.written(chains)
	}
	return c.settled()
}

// settled puts the manifests and waits until they are in force, without a record. What
// filter drops behind nat in iptables mode is written with the next change, and what
// goes in ipvs mode has gone when that begins.
func (c *changer) settled() error {
	c.put()
	err := c.shown()
	if c.mode() != "nftables" && err == nil {
		c.put()
		err = c.shown()
	}
	return err
}

// shown waits until the companion answers in both families, and in nftables mode
// refuses what is for another port: of a new Service that comes last.
func (c *changer) shown() error {
	companion := c.companion()
	for _, addr := range companion.cluster {
		to := netip.AddrPortFrom(addr, 80)
		if err := c.meets(lab.Call{Proto: "tcp", To: to}, "answered "+companion.endpoints[0].pod); err != nil {
			return err
		}
		if c.mode() == "nftables" {
			if err := c.meets(lab.Call{Proto: "udp", To: netip.AddrPortFrom(addr, 81)}, "refused"); err != nil {
				return err
			}
		}
	}
	return nil
}

// meets has a pod call until it meets this.
func (c *changer) meets(call lab.Call, want string) error {
	call.Timeout = silence
	var last lab.Outcome
	return c.until(func() (bool, error) {
		last = c.try(c.host("pod:visitor"), call)
		return outcomeText(last) == want, nil
	}, func() string { return fmt.Sprintf("%s %v: %v", call.Proto, call.To, last) })
}

func (c *changer) mode() string { return c.backend.(portolan).mode }

func (c *changer) recorded() bool { return c.backend.(portolan).isStandard() }

// calls waits until every probe is satisfied.
func (c *changer) calls(probes []*probe) error {
	return c.until(func() (bool, error) {
		all := true
		var errs []error
		for _, p := range probes {
			ok, err := p.satisfied()
			all = all && ok
			errs = append(errs, err)
		}
		return all, errors.Join(errs...)
	}, func() string {
		var late []string
		for _, p := range probes {
			if ok, _ := p.satisfied(); !ok {
				late = append(late, fmt.Sprintf("%v met %v, want each of %v", p, p.seen, p.new))
			}
		}
		return strings.Join(late, "; ")
	})
}

// until asks again and again.
func (c *changer) until(done func() (bool, error), state func() string) error {
	deadline := time.Now().Add(30 * time.Second)
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("not in 30 s: " + state())
		}
		<-pause.C
	}
}

// written waits until node1 has written these chains, and no others, in both
// families. Nothing at all is proved by the next thing that is written.
func (c *changer) written(chains string) error {
	if chains == "" {
		return c.mark()
	}
	return c.writtenExactly(func(family int) (map[string]bool, error) { return expandChains(chains, family) })
}

func (c *changer) writtenExactly(expand func(family int) (map[string]bool, error)) error {
	var want []map[string]bool
	for i := range families {
		chains, err := expand(i)
		if err != nil {
			return err
		}
		want = append(want, chains)
	}
	got, err := c.taken(func(r restores) string {
		var missing []string
		for i, family := range families {
			have := r.chains(family)
			for _, chain := range slices.Sorted(maps.Keys(want[i])) {
				if !have[chain] {
					missing = append(missing, family+" "+chain)
				}
			}
		}
		return strings.Join(missing, ", ")
	})
	if err != nil {
		return err
	}
	for i, family := range families {
		for chain := range got.chains(family) {
			if !want[i][chain] {
				err = errors.Join(err, fmt.Errorf("%s: %s was written, and had not changed", family, chain))
			}
		}
	}
	return err
}

// taken collects what node1 restores until nothing is missing.
func (c *changer) taken(missing func(restores) string) (restores, error) {
	got := restores{}
	err := c.until(func() (bool, error) {
		more, err := c.record.take("node1")
		got.add(more)
		return missing(got) == "", err
	}, func() string { return "not written: " + missing(got) })
	return got, err
}

// mark changes the companion alone, and waits until that is written, and with it all
// that was changed before. Nothing else may have been.
func (c *changer) mark() error {
	got, err := c.drain()
	for _, family := range families {
		for chain := range got.chains(family) {
			if chain != sharedChains["filter-services"] {
				err = errors.Join(err, fmt.Errorf("%s: %s was written, and nothing had changed", family, chain))
			}
		}
	}
	return err
}

// drain waits until the present manifests are in force, and gives what was written
// for that.
func (c *changer) drain() (restores, error) {
	if !c.recorded() {
		return nil, c.settled()
	}
	c.marks++
	c.put()
	rule := fmt.Sprintf("--dport %d -j REJECT", c.companion().port)
	return c.taken(func(r restores) string {
		if r.contain(rule) {
			return ""
		}
		return rule
	})
}

// web is the Service that most sequences are about, with these endpoints.
func web(kind string, pods ...string) manifest {
	m := manifest{name: "web", kind: kind, policy: "Cluster", port: 80, nodePort: 31000,
		cluster: pair("10.96.3.%d", "fd00:96::3%02x", 10), external: pair("198.51.100.%d", "2001:db8:198::%x", 210)}
	return m.with(pods...)
}

// with gives the Service with other endpoints, all ready.
func (m manifest) with(pods ...string) manifest {
	m.endpoints = nil
	for _, pod := range pods {
		m.endpoints = append(m.endpoints, podState{pod: pod, ready: true, serving: true})
	}
	return m
}

// call makes a probe; to is an address and port.
func call(from, proto, to string) *probe {
	return &probe{from: from, proto: proto, to: netip.MustParseAddrPort(to)}
}

// everywhere repeats what all of a number of probes meet.
func everywhere(n int, outcome string) []string {
	return slices.Repeat([]string{outcome}, n)
}

// changeScenario is the cluster of the sequences, with no Service of its own but one
// that never changes.
func changeScenario() scenario {
	s := cellScenario()
	s.manifests = manifest{name: "still", kind: "lb", policy: "Cluster", port: 80, nodePort: 31900,
		cluster: pair("10.96.3.%d", "fd00:96::3%02x", 90), external: pair("198.51.100.%d", "2001:db8:198::%x", 249)}.with("a", "x").yaml()
	return s
}
