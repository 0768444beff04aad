package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
	"portolan/service"
)

// Affinity has no object of a single Service but elements. A scope is what
// shares a client's choice: all addresses of a Service port that use the same
// list of endpoints. It is a number in the kernel:
//
//	affinity-ids {frontend : scope}               sets the priority of the packet
//	affinity {client . protocol . scope : endpoint}  is asked first
//	affinity-learn {upper bits of the scope : goto learn-SECONDS}   right after
//	    translation, in the same hook: remembers where the packet goes now, or starts
//	    its time anew, and sets the priority back
//	affinity-scopes {scope}                       is asked by nobody: it keeps their names
//
// In IPv6 the clients are in maps of their own for each port number that endpoints
// have, and hold the address alone (see words.byPort):
//
//	affinity-8080 {client . scope : address}   asked by the chain recall-8080
//	affinity-learn {upper bits of the scope : goto learn-SECONDS}
//	learn-SECONDS-ports {protocol . port : goto learn-SECONDS-8080}
//
// The priority of a packet is free there: what a forwarded one has is set from
// its TOS after that, and only the first packet of a connection is touched.

// scopeOf names the scope of a frontend, and behind a space the chain that learns its
// clients: "default/web:http learn-10800". Addresses whose outside clients use the
// endpoints of this node remember apart from those that use all, and those that have
// everybody use them apart from both.
func scopeOf(f service.Frontend, l learner) string {
	name := f.PortName.String()
	switch {
	case f.Route(service.FromHost).Policy == service.Local:
		name += "/here"
	case f.Route(service.FromOutside).Policy == service.Local:
		name += "/local"
	}
	behind := " " + l.chain()
	most := 120 - len(behind) // nft takes comments of up to 127 bytes
	if len(name) > most {
		sum := sha256.Sum256([]byte(name))
		name = name[:most-17] + "~" + base32.StdEncoding.EncodeToString(sum[:10])
	}
	return name + behind
}

// scopeRule puts the scope of the frontend where stickyRule and the learning
// chain find it.
func (b *Backend) scopeRule(k balancer) string {
	set := affinityIDs
	if k.nodePort {
		set = affinityPortIDs
	}
	return "meta priority set " + b.words.key(k.nodePort) + " map @" + set
}

// stickyRules translate to the endpoint that the client had.
func (b *Backend) stickyRules(ports portList) (rules []string) {
	if !b.words.byPort {
		return []string{"dnat ip to " + b.words.client() + " map @" + affinity}
	}
	for p := range ports.all() {
		rules = append(rules, "jump "+recall+p)
	}
	return rules
}

// learner is the chain that remembers for so many seconds who went to one of the ports.
type learner struct {
	timeout string
	ports   portList // empty where clients are not kept by port
}

// chain is the name that the learner has in the table, and by which scopes name it.
func (l learner) chain() string { return learnPrefix + l.timeout }

// portMap leads to the chain for each port.
func (l learner) portMap() string { return l.chain() + portsSuffix }

const (
	learnPrefix = "learn-"
	portsSuffix = "-ports"
)

// learnRule goes on with the chain that a packet's scope has in its upper bits.
var learnRule = fmt.Sprintf("ct state new ct status dnat meta priority & %s vmap @%s", classID(^uint32(scopeBits)), affinityLearn)

// affinityObjects are asked for by every Service with affinity.
func (b *Backend) affinityObjects(l learner) structure {
	return kept(&b.common, &b.common.learners, l, b.makeLearners)
}

// makeLearners writes the hooks, the chains of one learner, and the sets they look into, in
// the form that is told at the top of this file.
func (b *Backend) makeLearners(l learner) structure {
	var out structure
	for _, name := range []string{affinityIDs, affinityPortIDs, affinityScopes, affinityLearn} {
		out.sets = append(out.sets, b.set(name))
	}
	out.sets = append(out.sets, numbered(learners, l.chain()))
	add := func(name string, rules ...string) { out.chains = append(out.chains, chainObjects(name, rules...)...) }
	add("affinity-prerouting", "type filter hook prerouting"+afterDNAT, learnRule)
	add("affinity-output", "type filter hook output"+afterDNAT, learnRule)
	// Two rules: the first one ends where there is no room for another client.
	update := func(set, endpoint string) []string {
		return []string{"update @" + set + " { " + b.words.client() + " timeout " + l.timeout + "s : " + endpoint + " }", "meta priority set none"}
	}
	if !b.words.byPort {
		out.sets = append(out.sets, b.set(affinity))
		add(l.chain(), update(affinity, "ip daddr . th dport")...)
		return out
	}
	out.sets = append(out.sets, b.set(l.portMap()))
	add(l.chain(), b.words.nodePort+" vmap @"+l.portMap())
	for p := range l.ports.all() {
		set, chain := affinityAt+p, l.chain()+"-"+p
		out.sets = append(out.sets, b.set(set))
		var rules []string
		for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
			// nft wants the protocol compared before it takes a port.
			rules = append(rules, "meta l4proto "+string(protocol)+" dnat ip6 to "+b.words.client()+" map @"+set+" : "+p)
			key := string(protocol) + " . " + p
			out.sets = append(out.sets, dataplane.Object{
				Key:  dataplane.Key{Container: "map/" + l.portMap(), Rank: dataplane.Keyed, Name: key},
				Body: key + " : goto " + chain,
			})
		}
		add(recall+p, rules...)
		add(chain, update(set, "ip6 daddr")...)
	}
	return out
}

// portList is the port numbers of endpoints, sorted, each once: "8080-9090".
type portList string

// portsOf lists the ports of endpoints.
func portsOf(lists ...[]service.Endpoint) portList {
	var numbers []uint16
	for _, list := range lists {
		for _, e := range list {
			if at, known := slices.BinarySearch(numbers, e.Addr.Port()); !known {
				numbers = slices.Insert(numbers, at, e.Addr.Port())
			}
		}
	}
	var out []byte
	for i, n := range numbers {
		if i > 0 {
			out = append(out, '-')
		}
		out = strconv.AppendUint(out, uint64(n), 10)
	}
	return portList(out)
}

// all yields the ports one by one, as text.
func (l portList) all() iter.Seq[string] { return strings.SplitSeq(string(l), "-") }

// suffix is the end of the name of a chain that is for these ports, empty for none.
// More than a few of them are a hash.
func (l portList) suffix(before string) string {
	const most = 47 // eight ports of five digits
	switch {
	case l == "":
		return ""
	case len(l) <= most:
		return before + string(l)
	}
	sum := sha256.Sum256([]byte(l))
	return before + base32.StdEncoding.EncodeToString(sum[:10])
}
