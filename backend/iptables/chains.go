package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"portolan/dataplane"
)

// Chains, each as the container that it is: table, slash, name.
const (
	filterServices = "filter/KUBE-SERVICES"
	filterExternal = "filter/KUBE-EXTERNAL-SERVICES"
	filterNodePort = "filter/KUBE-NODEPORTS"
	filterForward  = "filter/KUBE-FORWARD"
	filterProxyFW  = "filter/KUBE-PROXY-FIREWALL"
	filterFirewall = "filter/KUBE-FIREWALL" // shared with kubelet
	filterCanary   = "filter/KUBE-PROXY-CANARY"
	natServices    = "nat/KUBE-SERVICES"
	natNodePorts   = "nat/KUBE-NODEPORTS"
	natPostrouting = "nat/KUBE-POSTROUTING"
	natMarkMasq    = "nat/KUBE-MARK-MASQ"
	natCanary      = "nat/KUBE-PROXY-CANARY"
	mangleCanary   = "mangle/KUBE-PROXY-CANARY"
)

// Chains of the compact layout.
const (
	natHairpin             = "nat/KUBE-PORTOLAN-HAIRPIN"
	filterNodePortRefusals = "filter/KUBE-PORTOLAN-NODEPORTS"

	addressLeaf   = "nat/KUBE-PORTOLAN-IP-"
	addressBranch = "nat/KUBE-PORTOLAN-IPS-"
	hairpinLeaf   = "nat/KUBE-PORTOLAN-HP-"
	hairpinBranch = "nat/KUBE-PORTOLAN-HPS-"
	portLeaf      = "nat/KUBE-PORTOLAN-NP-"

	// A choice among many endpoints has chains of this prefix and the first letters of
	// the hash that its first chain has.
	choicePrefix = "nat/" + ownPrefix
	choiceHash   = 9
)

// ownPrefix begins the names of our own chains that kube-proxy does not have, in
// any table: iptables.ProbeChain, and all that a later layout may bring, so that
// this one removes it.
const ownPrefix = "KUBE-PORTOLAN-"

// topChains are ours as a whole and always there.
var topChains = []string{
	filterServices, filterExternal, filterNodePort, filterForward, filterProxyFW, filterCanary,
	natServices, natNodePorts, natPostrouting, natMarkMasq, natCanary, mangleCanary,
}

// Prefixes of the chains of one Service port, all in nat.
const (
	clusterChain  = "nat/KUBE-SVC-"
	localChain    = "nat/KUBE-SVL-"
	externalChain = "nat/KUBE-EXT-"
	firewallChain = "nat/KUBE-FW-"
	endpointChain = "nat/KUBE-SEP-"
)

var portChains = []string{clusterChain, localChain, externalChain, firewallChain, endpointChain}

// chainOf and tableOf take a container apart.
func chainOf(container string) string { return container[strings.IndexByte(container, '/')+1:] }
func tableOf(container string) string { return container[:strings.IndexByte(container, '/')] }

// ownChain tells whether a chain is ours to write as a whole.
func ownChain(container string) bool {
	for _, c := range topChains {
		if c == container {
			return true
		}
	}
	for _, prefix := range portChains {
		if strings.HasPrefix(container, prefix) {
			return true
		}
	}
	return strings.HasPrefix(chainOf(container), ownPrefix)
}

// hash is the name part of the chains of a port (without address) or endpoint:
// the first 16 letters of the base32 form of the sha256 of everything strung
// together.
func hash(portName, protocol, address string) string {
	var room [256]byte
	in := append(room[:0], portName...)
	in = append(in, protocol...)
	in = append(in, address...)
	sum := sha256.Sum256(in)
	var out [16]byte
	base32.StdEncoding.Encode(out[:], sum[:10])
	return string(out[:])
}

// jump leads from a built-in chain to one of ours.
type jump struct {
	from, match, comment, to string
}

const onlyNew = "-m conntrack --ctstate NEW"

// jumps in the order of insertion: each is prepended, so that the effective
// order is the reverse. They are kube-proxy's.
var jumps = []jump{
	{"filter/INPUT", onlyNew, "kubernetes externally-visible service portals", filterExternal},
	{"filter/FORWARD", onlyNew, "kubernetes externally-visible service portals", filterExternal},
	{"filter/INPUT", "", "kubernetes health check service ports", filterNodePort},
	{"filter/FORWARD", onlyNew, "kubernetes service portals", filterServices},
	{"filter/OUTPUT", onlyNew, "kubernetes service portals", filterServices},
	{"filter/FORWARD", "", "kubernetes forwarding rules", filterForward},
	{"filter/INPUT", onlyNew, "kubernetes load balancer firewall", filterProxyFW},
	{"filter/OUTPUT", onlyNew, "kubernetes load balancer firewall", filterProxyFW},
	{"filter/FORWARD", onlyNew, "kubernetes load balancer firewall", filterProxyFW},
	{"nat/OUTPUT", "", "kubernetes service portals", natServices},
	{"nat/PREROUTING", "", "kubernetes service portals", natServices},
	{"nat/POSTROUTING", "", "kubernetes postrouting rules", natPostrouting},
	{"filter/INPUT", "", "", filterFirewall},
	{"filter/OUTPUT", "", "", filterFirewall},
}

func (j jump) body() string {
	var words []string
	if j.match != "" {
		words = append(words, j.match)
	}
	if j.comment != "" {
		words = append(words, `-m comment --comment "`+j.comment+`"`)
	}
	return strings.Join(append(words, "-j "+chainOf(j.to)), " ")
}

// object of a jump: its Name begins with its place in the order of insertion.
// The jumps to kubelet's chain are kubelet's too.
func (j jump) object(place int) dataplane.Object {
	rank := dataplane.Keyed
	if j.to == filterFirewall {
		rank = dataplane.Ensured
	}
	return dataplane.Object{
		Key:  dataplane.Key{Container: j.from, Rank: rank, Name: fmt.Sprintf("%02d %s", place, chainOf(j.to))},
		Body: j.body(),
	}
}

// localnet keeps neighbours from the loopback addresses, which route_localnet
// would open to them. Kubelet writes the same rule.
var localnet = dataplane.Object{
	Key: dataplane.Key{Container: filterFirewall, Rank: dataplane.Ensured, Name: "localnet"},
	Body: `-m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8` +
		` -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP`,
}

// sharedKeys finds the key of an observed line of ours in a shared chain, by
// container and body.
func sharedKeys() map[string]map[string]dataplane.Key {
	keys := map[string]map[string]dataplane.Key{filterFirewall: {localnet.Body: localnet.Key}}
	for i, j := range jumps {
		if keys[j.from] == nil {
			keys[j.from] = map[string]dataplane.Key{}
		}
		o := j.object(i)
		keys[j.from][o.Body] = o.Key
	}
	return keys
}
