package nftables

import (
	"strconv"

	"portolan/dataplane"
	"portolan/service"
)

// layout counts the forms that our table has had. A table with another number is
// replaced as a whole, in one transaction.
const layout = 3

// layoutChain is an empty chain that tells the layout.
func layoutChain(n int) string { return "layout-" + strconv.Itoa(n) }

// Names of the chains that exist once.
const (
	services      = "services"       // new connections, to be translated
	refuse        = "refuse"         // where verdict maps go to reject
	discard       = "discard"        // where they go to drop
	bar           = "bar"            // where clients outside of the ranges of a frontend go
	recall        = "recall-"        // and a port: to the endpoint with that port that the client had
	checkSources  = "check-sources"  // source ranges, before translation
	checkInput    = "check-input"    // new connections to this node
	checkServices = "check-services" // new connections to others
	filterForward = "filter-forward" // all that passes this node
)

// Priorities. Source ranges are looked at before translation, and what affinity
// remembers is learned right after it.
const (
	beforeDNAT = " priority -110; policy accept;"
	atDNAT     = " priority -100; policy accept;"
	afterDNAT  = " priority -90; policy accept;"
	atFilter   = " priority 0; policy accept;"
	atSNAT     = " priority 100; policy accept;"
)

// Base returns what does not depend on any Service: hooks, the fixed chains, and
// the sets that they look into.
func (b *Backend) Base(node service.Node) []dataplane.Object {
	s := newSheet()
	w := &b.words
	for _, name := range []string{serviceIPs, nodePorts, balancers, noEndpoints, noEndpointNodePorts, clusterIPs, hairpin, limited, sources, refused, discarded, barred} {
		s.sets = append(s.sets, b.set(name))
	}
	chain := func(name string, rules ...string) { s.chains = append(s.chains, chainObjects(name, rules...)...) }
	chain(layoutChain(layout))
	chain("nat-prerouting", "type nat hook prerouting"+atDNAT, "jump "+services)
	chain("nat-output", "type nat hook output"+atDNAT, "jump "+services)
	chain("nat-postrouting", "type nat hook postrouting"+atSNAT,
		// The mark goes, so that a packet that passes here again, for example when
		// it leaves a tunnel, is not masqueraded twice.
		"meta mark & "+w.mark+" != 0x00000000 meta mark set meta mark ^ "+w.mark+" masquerade fully-random",
		"ct status dnat "+w.ip+" saddr . "+w.service+" @"+hairpin+" masquerade fully-random")
	chain("filter-prerouting", "type filter hook prerouting"+beforeDNAT, "ct state new jump "+checkSources)
	chain("filter-output-early", "type filter hook output"+beforeDNAT, "ct state new jump "+checkSources)
	chain("filter-input", "type filter hook input"+atFilter, "ct state new jump "+checkInput)
	forward := []string{"type filter hook forward" + atFilter} // Dropped reads its first rule
	if !b.options.LiberalTCP {
		forward = append(forward, "ct state invalid counter drop")
	}
	chain(filterForward, append(forward, "ct state new jump "+checkServices)...)
	chain("filter-output", "type filter hook output"+atFilter, "ct state new jump "+checkServices)

	here := b.nodePortAddresses(s, node)
	chain(services, w.dispatch(w.service, serviceIPs), here+w.dispatch(w.nodePort, nodePorts))
	chain(checkSources, w.checkSourcesRule(sources))
	chain(checkInput, here+w.nodePort+" vmap @"+noEndpointNodePorts, w.service+" vmap @"+noEndpoints)
	chain(checkServices, append([]string{w.service + " vmap @" + noEndpoints, w.ip + " daddr @" + clusterIPs + " reject"},
		b.unallocated(node)...)...)
	// Counting is a rule of its own: a rule ends where the kernel has no room for another
	// element, be it for want of memory.
	chain(refuse, w.count(refused), "reject")
	chain(discard, w.count(discarded), "drop")
	chain(bar, w.count(barred), "drop")
	return s.objects()
}

// dispatch goes to the chain that a frontend has, by its number, for which the priority
// of the packet has room: a map of chains that is as long as there are frontends would
// be walked by the kernel, to see that no chain leads to itself, in each transaction
// that changes an element of it.
func (w *words) dispatch(key, set string) string {
	return "meta priority set " + key + " map @" + set + " meta priority vmap @" + balancers
}

// nodePortAddresses returns the match of the addresses on which NodePorts
// answer. Loopback never does: translating it needs route_localnet, which opens
// 127.0.0.0/8 to neighbours.
func (b *Backend) nodePortAddresses(s *sheet, node service.Node) string {
	w := &b.words
	if node.NodePorts.All(b.options.Family) {
		return "fib daddr type local " + w.ip + " daddr != " + w.loopback + " "
	}
	s.sets = append(s.sets, b.set(nodePortIPs))
	for _, a := range node.NodePorts.Selected(b.options.Family) {
		if !a.IsLoopback() {
			s.element("set/"+nodePortIPs, a.String())
		}
	}
	return w.ip + " daddr @" + nodePortIPs + " "
}

// unallocated drops packets to addresses that are for Services, and that no Service
// has. They are not refused: the Service may be new and not yet known here, and a
// client that hears nothing tries again.
func (b *Backend) unallocated(node service.Node) (rules []string) {
	for _, p := range outermost(node.ServiceCIDRs) {
		if service.FamilyOf(p.Addr()) == b.options.Family {
			rules = append(rules, b.words.ip+" daddr "+p.String()+" counter drop")
		}
	}
	return rules
}

const (
	setsContainer = "sets"
	chainPrefix   = "chain/"
)

// set is the object that declares one of our sets.
func (b *Backend) set(name string) dataplane.Object {
	s, ok := shapeOf(name)
	if !ok {
		panic("nftables: no set is called " + name)
	}
	return dataplane.Object{
		Key:  dataplane.Key{Container: setsContainer, Rank: dataplane.Keyed, Name: name},
		Body: b.words.setBody(name, s),
	}
}

func (w *words) setBody(name string, s *shape) string {
	kind := "map "
	if s.holds == nothing {
		kind = "set "
	}
	return kind + name + " { " + w.declaration(s) + " }"
}

// chainObjects are the rules of a chain; without any it is just there.
func chainObjects(name string, rules ...string) []dataplane.Object {
	if len(rules) == 0 {
		return []dataplane.Object{{Key: dataplane.Key{Container: chainPrefix + name}}}
	}
	out := make([]dataplane.Object, len(rules))
	for i, r := range rules {
		out[i] = dataplane.Object{Key: dataplane.Key{Container: chainPrefix + name, Rank: i}, Body: r}
	}
	return out
}
