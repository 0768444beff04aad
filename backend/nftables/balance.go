package nftables

import (
	"crypto/sha256"
	"encoding/base32"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// masquerade says whose packets are marked to be masqueraded.
type masquerade uint8

const (
	nobody masquerade = iota
	everybody
	outsiders // all but pods of this cluster
)

// balancer is a way to balance that frontends share: everything about one but
// the endpoints themselves.
type balancer struct {
	nodePort bool
	all      int // slots: endpoints, each as often as its weight says
	// local: pods and this node use all slots, others those here, on this node.
	local, affine bool
	here          int
	ports         portList // of the endpoints, where clients are remembered by port
	masquerade    masquerade
	pods          string // match of pod traffic, empty without a detector
	// turns names the one Service port that this is for, where slots are taken one
	// after the other: whoever shared its counter would take turns away. Empty for
	// slots by chance.
	turns string
}

// counts names the lists: "10", "10-3", or "10-turns-2K3EKFQZ" of one Service port.
func (k balancer) counts() string {
	out := strconv.Itoa(k.all)
	if k.local {
		out += "-" + strconv.Itoa(k.here)
	}
	if k.turns != "" {
		out += turnsWord + k.turns
	}
	return out
}

// turnsWord is between the counts of slots and the name of the Service port.
const turnsWord = "-turns-"

// turnsOf names a Service port: turnsLength letters of a hash.
func turnsOf(f service.Frontend) string {
	sum := sha256.Sum256([]byte(f.PortName.String() + "/" + string(f.Protocol)))
	return base32.StdEncoding.EncodeToString(sum[:])[:turnsLength]
}

// turnsLength leaves two of a million Service ports alike once in a trillion times.
const turnsLength = 16

// slots is the map of endpoints that frontends with this way to balance share.
func (k balancer) slots() string {
	if k.nodePort {
		return portSlotMap + k.counts()
	}
	return slotMap + k.counts()
}

// core is the chain that chooses the endpoint; with marks it is not the one that
// frontends go to.
func (k balancer) core() string {
	name := "lb-"
	if k.nodePort {
		name = "np-"
	}
	if k.affine {
		name += "aff-"
	}
	if k.local {
		name += "local-"
	}
	return name + k.counts() + k.ports.suffix("-to-")
}

// entry is the chain that frontends go to.
func (k balancer) entry() string {
	switch k.masquerade {
	case everybody:
		return k.core() + "-masq"
	case outsiders:
		return k.core() + "-masq-outside"
	}
	return k.core()
}

// structure is what owners share: chains, sorted, and what leads to them and the sets
// they look into.
type structure struct {
	entry, slots string // of a balancer
	chains, sets []dataplane.Object
}

// common keeps the text that many Services share.
type common struct {
	mu        sync.Mutex
	balancers map[balancer]structure
	learners  map[learner]structure
	pods      map[netip.Prefix]string // match of traffic from there
}

// mostKept bounds what is kept: with weights, slow start and policy Local a Service goes
// through very many pairs of counts in its life.
const mostKept = 2048

// kept returns what was made for a key the first time. When there is too much of it, all
// is made anew.
func kept[K comparable, V any](c *common, m *map[K]V, key K, create func(K) V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := (*m)[key]
	if !ok {
		known = create(key)
		if *m == nil || len(*m) >= mostKept {
			*m = map[K]V{}
		}
		(*m)[key] = known
	}
	return known
}

// chainsOf returns the map and the chains of a balancer. What is for one Service port
// alone is made anew.
func (b *Backend) chainsOf(k balancer) structure {
	if k.turns != "" {
		return b.makeChains(k)
	}
	return kept(&b.common, &b.common.balancers, k, b.makeChains)
}

// makeChains writes the chain that chooses, the one that marks before it if there is one,
// and what leads to them.
func (b *Backend) makeChains(k balancer) structure {
	out := structure{entry: k.entry(), slots: k.slots(), sets: []dataplane.Object{numbered(balancing, k.entry()), b.set(k.slots())}}
	add := func(name string, rules ...string) { out.chains = append(out.chains, chainObjects(name, rules...)...) }
	mark := "meta mark set meta mark | " + b.words.mark + " "
	switch k.masquerade {
	case everybody:
		add(k.entry(), mark+"goto "+k.core())
	case outsiders:
		add(k.entry(), k.pods+"goto "+k.core(), mark+"goto "+k.core())
	}
	switch {
	case k.local:
		add(k.core(), b.localRules(k, mark)...)
	case k.affine:
		add(k.core(), slices.Concat([]string{b.scopeRule(k)}, b.stickyRules(k.ports), []string{b.choose(k, k.all, 0), lostRule})...)
	default:
		add(k.core(), arrivedRule, b.choose(k, k.all, 0), lostRule)
	}
	slices.SortFunc(out.chains, func(a, b dataplane.Object) int { return a.Key.Compare(b.Key) })
	return out
}

// numbered is the element that leads to a chain by its number.
func numbered(container, chain string) dataplane.Object {
	return dataplane.Object{
		Key:  dataplane.Key{Container: container, Rank: dataplane.Keyed, Name: chain},
		Body: chain + " : goto " + chain,
	}
}

// arrivedRule takes the number of the chain out of the packet; a scope replaces it.
const arrivedRule = "meta priority set none"

// lostRule ends every chain that balances: nothing must get there, so that the
// counter tells when something did.
const lostRule = "counter drop"

// choose translates to one of n slots.
func (b *Backend) choose(k balancer, n, offset int) string {
	next := "random"
	if k.turns != "" {
		next = "inc"
	}
	rule := "dnat " + b.words.ip + " to " + b.words.key(k.nodePort) + " . numgen " + next + " mod " + strconv.Itoa(n)
	if offset > 0 {
		rule += " offset " + strconv.Itoa(offset)
	}
	return rule + " map @" + k.slots()
}

// localRules balance for pods and this node over all endpoints, and for others
// over those on this node; with none of these their packets pass untranslated
// and are dropped by no-endpoints.
func (b *Backend) localRules(k balancer, mark string) []string {
	const fromHere = "fib saddr type local "
	rules := []string{arrivedRule}
	if k.affine {
		rules[0] = b.scopeRule(k)
	}
	add := func(who string, n, offset int) {
		if k.affine {
			for _, rule := range b.stickyRules(k.ports) {
				rules = append(rules, who+rule)
			}
		}
		rules = append(rules, who+b.choose(k, n, offset))
	}
	if k.all > 0 {
		if k.pods != "" {
			add(k.pods, k.all, 0)
		}
		rules = append(rules, fromHere+mark[:len(mark)-1])
		add(fromHere, k.all, 0)
	}
	if k.here > 0 {
		add("", k.here, localSlots)
		rules = append(rules, lostRule)
	}
	return rules
}

// podMatch matches traffic from pods, with a space behind; it is empty where
// pods cannot be told from others.
func (b *Backend) podMatch(node service.Node) string {
	d := node.Detector
	if cidr, ok := d.CIDR(b.options.Family); ok {
		return kept(&b.common, &b.common.pods, cidr, func(p netip.Prefix) string { return b.words.ip + " saddr " + p.String() + " " })
	}
	if d.Bridge != "" {
		return `iifname "` + d.Bridge + `" `
	}
	if d.InterfacePrefix != "" {
		return `iifname "` + d.InterfacePrefix + `*" `
	}
	return ""
}

// balancerOf derives the way to balance, and the slots, from the routes of a
// frontend. It is false for one that translates nobody's packets.
func balancerOf(f service.Frontend, pods string) (balancer, [2][]service.Endpoint, bool) {
	pod, host, outside := f.Route(service.FromPod), f.Route(service.FromHost), f.Route(service.FromOutside)
	k := balancer{nodePort: f.Kind == service.NodePort, affine: f.Affinity > 0, pods: pods}
	if host.Verdict != service.Forward && outside.Verdict != service.Forward {
		return k, [2][]service.Endpoint{}, false
	}
	if f.Algorithm == service.RoundRobin {
		k.turns = turnsOf(f)
	}
	if host.Policy == outside.Policy && host.Verdict == outside.Verdict {
		slots := service.Slots(outside.Endpoints)
		k.all = len(slots)
		switch {
		case pod.Masquerade && outside.Masquerade:
			k.masquerade = everybody
		case outside.Masquerade:
			k.masquerade = outsiders
		}
		if k.masquerade != outsiders {
			k.pods = "" // does not matter, so that more frontends are alike
		}
		return k, [2][]service.Endpoint{slots}, true
	}
	all, here := service.Slots(host.Endpoints), service.Slots(outside.Endpoints)
	k.local, k.all, k.here = true, len(all), len(here)
	return k, [2][]service.Endpoint{all, here}, true
}

func seconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
