package iptables

import (
	"strconv"
	"strings"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// Layout is how rules are arranged. A Service is answered alike in each.
type Layout uint8

// The layouts; docs/adr/0010-compact-layout.md compares them.
const (
	// Standard has kube-proxy's chains.
	Standard Layout = iota
	// Compact is for many Services: trees instead of long chains, and no chain for
	// each endpoint.
	Compact
)

// compactRule is layoutRule in the compact layout.
var compactRule = dataplane.Object{Key: layoutRule.Key, Body: layoutBody("compact 1")}

// choose writes the choice of an endpoint in the compact layout, where the chain that
// chooses translates. What a client was sent to before comes first: update is rcheck
// there and set in the endpoint's chain of the standard layout, and the lists have
// the names of those chains, so that a change of layout forgets no client.
func (p *port) choose(chain string, rank int, policy service.Policy, endpoints []service.Endpoint, f *service.Frontend) {
	c := chooser{port: p, policy: policy, endpoints: endpoints, sticky: f.Affinity > 0}
	if c.sticky {
		addresses, lists := p.endpointNames(endpoints)
		seconds := strconv.FormatInt(int64(f.Affinity/time.Second), 10)
		for i, a := range addresses {
			p.rule(chain, rank, "", "-m recent --name ", lists[i], " --update --seconds ", seconds, " --reap -p ",
				string(p.pf.Port.Protocol), " -j DNAT --to-destination ", a)
			rank++
		}
	}
	if f.Algorithm == service.RoundRobin {
		c.endpoints = service.Slots(endpoints)
		for i := range c.endpoints {
			c.translate(chain, rank+i, i, everyNth(len(c.endpoints)-i))
		}
		return
	}
	c.ratios = service.Ratios(endpoints)
	c.width = max(fanOut, (len(endpoints)+maxLeaves-1)/maxLeaves)
	c.spread(chain, rank, 0, len(endpoints))
}

// A chain that chooses leads to at most fanOut chains, or endpoints; so a connection
// passes few rules however many endpoints there are. Of more than fanOut*maxLeaves
// endpoints the last chains have more.
const (
	fanOut    = 32
	maxLeaves = fanOut * fanOut
)

// chooser writes one choice.
type chooser struct {
	*port
	policy    service.Policy
	endpoints []service.Endpoint
	ratios    []int
	sticky    bool
	width     int    // of a chain that leads to endpoints
	named     [2]int // how many chains below the first one have a name, by level
}

// spread writes the choice among the endpoints from and before to.
func (c *chooser) spread(chain string, rank, from, to int) {
	left, n := c.weight(from, to), to-from
	if n <= c.width {
		for i := from; i < to; i++ {
			c.translate(chain, rank, i, odds(c.ratios[i], left))
			left -= c.ratios[i]
			rank++
		}
		return
	}
	groups := min(fanOut, (n+c.width-1)/c.width)
	for g := range groups {
		first, end := from+g*n/groups, from+(g+1)*n/groups
		weight := c.weight(first, end)
		below := c.below(end - first)
		c.rule(chain, rank+g, "", odds(weight, left), "-j ", chainOf(below))
		c.spread(below, 0, first, end)
		left -= weight
	}
}

func (c *chooser) weight(from, to int) (sum int) {
	for _, r := range c.ratios[from:to] {
		sum += r
	}
	return sum
}

// Levels of chains below the first one of a choice.
const (
	toEndpoints = iota
	toChains
)

// below names a chain for n endpoints by its Service port, as far as there is room,
// its policy, level and number.
func (c *chooser) below(n int) string {
	level, policy := toEndpoints, "C"
	if n > c.width {
		level = toChains
	}
	if c.policy == service.Local {
		policy = "L"
	}
	number := strconv.FormatInt(int64(c.named[level]), 36)
	c.named[level]++
	return choicePrefix + c.cluster[len(clusterChain):][:choiceHash] + "-" + policy + strconv.Itoa(level) + number
}

// choiceLevel returns the level in the name of a chain that chooses below another.
func choiceLevel(container string) (level int, is bool) {
	name, is := strings.CutPrefix(container, choicePrefix)
	if !is || len(name) < choiceHash+4 || name[choiceHash] != '-' {
		return 0, false
	}
	return int(name[choiceHash+2] - '0'), true
}

// translate writes the line that leads to one endpoint when the match, which may be
// empty, lets it.
func (c *chooser) translate(chain string, rank, i int, match string) {
	e := &c.endpoints[i]
	protocol, address := string(c.pf.Port.Protocol), e.Addr.String()
	if !c.sticky {
		c.rule(chain, rank, "", "-p ", protocol, " ", match, "-j DNAT --to-destination ", address)
		return
	}
	_, lists := c.endpointNames(c.endpoints[i : i+1])
	if match == "" {
		c.rule(chain, rank, "", "-m recent --name ", lists[0], " --set -p ", protocol, " -j DNAT --to-destination ", address)
		return
	}
	c.rule(chain, rank, "", "-p ", protocol, " ", match, "-m recent --name ", lists[0], " --set -j DNAT --to-destination ", address)
}

// odds matches part of whole connections, empty when that is all.
func odds(part, whole int) string {
	if part == whole {
		return ""
	}
	return "-m statistic --mode random --probability " + probability(part, whole) + " "
}

// everyNth matches one connection in n, empty when that is each.
func everyNth(n int) string {
	if n == 1 {
		return ""
	}
	return "-m statistic --mode nth --every " + strconv.Itoa(n) + " --packet 0 "
}

// hairpins have masqueraded what an endpoint on this node sends to itself through a
// Service, or its answers would not come back this way. In the standard layout the
// endpoint's chain marks it.
func (p *port) hairpins() {
	for _, e := range p.pf.Choice.Reachable {
		if !e.LocalTo(p.node.Name) {
			continue
		}
		addr := e.Addr.Addr()
		text := addr.String()
		p.addressLine(natHairpin, addr, text, "-d ", text, " -s ", text, " -j KUBE-MARK-MASQ")
	}
}
