package ipvs

import (
	"fmt"
	"strings"

	"portolan/dataplane"
)

// Chains, each as the container that it is: table, slash, name. KUBE-SERVICES of nat
// and others bear the names that they have in iptables mode.
const (
	natServices     = "nat/KUBE-SERVICES"
	natPostrouting  = "nat/KUBE-POSTROUTING"
	natNodePort     = "nat/KUBE-NODE-PORT"
	natLoadBalancer = "nat/KUBE-LOAD-BALANCER"
	natMarkMasq     = "nat/KUBE-MARK-MASQ"
	natInside       = "nat/KUBE-PORTOLAN-INSIDE"
	natTo           = "nat/KUBE-PORTOLAN-TO"
	filterForward   = "filter/KUBE-FORWARD"
	filterNodePort  = "filter/KUBE-NODE-PORT"
	filterProxyFW   = "filter/KUBE-PROXY-FIREWALL"
	filterRanges    = "filter/KUBE-SOURCE-RANGES-FIREWALL"
	filterIPVS      = "filter/KUBE-IPVS-FILTER"
	mangleOut       = "mangle/KUBE-PORTOLAN-OUT"
	mangleRanges    = "mangle/KUBE-PORTOLAN-RANGES"
)

// topChains are ours as a whole and always there.
var topChains = []string{natServices, natPostrouting, natNodePort, natLoadBalancer, natMarkMasq,
	filterForward, filterNodePort, filterProxyFW, filterRanges, filterIPVS}

// otherChains are ours when they are there: those that kube-proxy has in this mode and
// we do not need, and those of iptables mode, in which the node may have been.
var (
	otherChains = []string{"filter/KUBE-IPVS-OUT-FILTER",
		"nat/KUBE-NODEPORTS", "nat/KUBE-PROXY-CANARY", "filter/KUBE-SERVICES", "filter/KUBE-EXTERNAL-SERVICES",
		"filter/KUBE-NODEPORTS", "filter/KUBE-PROXY-CANARY", "mangle/KUBE-PROXY-CANARY", "nat/KUBE-MARK-DROP", "nat/KUBE-FIREWALL"}
	otherPrefixes = []string{"nat/KUBE-SVC-", "nat/KUBE-SVL-", "nat/KUBE-EXT-", "nat/KUBE-FW-", "nat/KUBE-SEP-"}
)

// ownPrefix begins the names of chains and sets that kube-proxy does not have, also
// in a later version of this program.
const ownPrefix = "KUBE-PORTOLAN-"

// chainOf and tableOf take a container apart.
func chainOf(container string) string { return container[strings.IndexByte(container, '/')+1:] }
func tableOf(container string) string { return container[:strings.IndexByte(container, '/')] }

// ownChains holds topChains and otherChains.
var ownChains = func() map[string]bool {
	m := map[string]bool{}
	for _, list := range [][]string{topChains, otherChains} {
		for _, c := range list {
			m[c] = true
		}
	}
	return m
}()

// ownChain tells whether a chain is ours to write as a whole.
func ownChain(container string) bool {
	if ownChains[container] || strings.HasPrefix(chainOf(container), ownPrefix) {
		return true
	}
	for _, prefix := range otherPrefixes {
		if strings.HasPrefix(container, prefix) {
			return true
		}
	}
	return false
}

// jump leads from a built-in chain to one of ours.
type jump struct{ from, comment, to string }

// jumps in the order of insertion: each is prepended, so that the effective order is
// the reverse. They are kube-proxy's.
var jumps = []jump{
	{"nat/OUTPUT", "kubernetes service portals", natServices},
	{"nat/PREROUTING", "kubernetes service portals", natServices},
	{"nat/POSTROUTING", "kubernetes postrouting rules", natPostrouting},
	{"filter/FORWARD", "kubernetes forwarding rules", filterForward},
	{"filter/INPUT", "kubernetes health check rules", filterNodePort},
	{"filter/INPUT", "kube-proxy firewall rules", filterProxyFW},
	{"filter/FORWARD", "kube-proxy firewall rules", filterProxyFW},
	{"filter/INPUT", "kubernetes ipvs access filter", filterIPVS},
}

// outJump is there when a load balancer address has source ranges.
var outJump = jump{"mangle/OUTPUT", "kube-proxy firewall rules", mangleOut}

func (j jump) object(place int) dataplane.Object {
	return dataplane.Object{
		Key:  dataplane.Key{Container: j.from, Rank: dataplane.Keyed, Name: fmt.Sprintf("%02d %s", place, chainOf(j.to))},
		Body: `-m comment --comment "` + j.comment + `" -j ` + chainOf(j.to),
	}
}

// jumpKeys finds the key of an observed jump, by container and body.
func jumpKeys() map[string]map[string]dataplane.Key {
	keys := map[string]map[string]dataplane.Key{}
	for i, j := range append(jumps[:len(jumps):len(jumps)], outJump) {
		o := j.object(i)
		if keys[j.from] == nil {
			keys[j.from] = map[string]dataplane.Key{}
		}
		keys[j.from][o.Body] = o.Key
	}
	return keys
}

// Ranks in nat KUBE-SERVICES. Those of rules of sets leave room for three rules each.
const (
	rankLoopback = iota
	rankInsidePods
	rankInsideHost
	rankMarks     = 10
	rankNodePorts = 90
	rankAccepts   = 91
)

// line is a rule of one of our chains.
func line(container string, rank int, body ...string) dataplane.Object {
	return dataplane.Object{Key: dataplane.Key{Container: container, Rank: rank}, Body: strings.Join(body, "")}
}

// rankChain is behind that of every line.
const rankChain = 1 << 20

// chain asks for a chain, with or without lines: a claim without a name.
func chain(container string) dataplane.Object {
	return dataplane.Object{Key: dataplane.Key{Container: container, Rank: rankChain}}
}

// match is the words that match with a set, behind the comment of the set if it has
// one. Directions say which address or port of the packet each part of an entry is:
// "dst,dst,src".
func (b *Backend) match(id setID, directions string) string {
	words := ""
	if c := sets[id].comment; c != "" {
		words = `-m comment --comment "` + c + `" `
	}
	return words + b.bare(id, directions)
}

// bare is match without the comment.
func (b *Backend) bare(id setID, directions string) string {
	return "-m set --match-set " + b.name(id) + " " + directions
}

// rulesOf are the rules that stand while the set has members. That of the cluster IPs
// depends on the node; see markClusterIPs.
func (b *Backend) rulesOf(id setID) []dataplane.Object {
	const from = rankMarks
	switch id {
	case loopBack:
		return []dataplane.Object{line(natPostrouting, 0, b.match(id, "dst,dst,src"), " -j MASQUERADE")}
	case clusterIP:
		return []dataplane.Object{line(natServices, rankAccepts, b.bare(id, "dst,dst"), " -j ACCEPT")}
	case externalIP, externalIPLocal:
		rank := from + 10*int(id)
		match := b.match(id, "dst,dst")
		rules := []dataplane.Object{
			line(natServices, rank+1, match, " -m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT"),
			line(natServices, rank+2, match, " -m addrtype --dst-type LOCAL -j ACCEPT"),
		}
		if id == externalIP {
			rules = append(rules, line(natServices, rank, match, " -j KUBE-MARK-MASQ"))
		}
		return rules
	case loadBalancer:
		return []dataplane.Object{
			line(natServices, from, b.match(id, "dst,dst"), " -j KUBE-LOAD-BALANCER"),
			line(natServices, rankAccepts+1, b.bare(id, "dst,dst"), " -j ACCEPT"),
		}
	case loadBalancerLocal:
		return []dataplane.Object{line(natLoadBalancer, 0, b.match(id, "dst,dst"), " -j RETURN")}
	case loadBalancerFW:
		return b.rangeRules()
	case loadBalancerSourceCIDR, loadBalancerSourceIP:
		match := b.match(id, "dst,dst,src")
		return []dataplane.Object{line(filterRanges, int(id), match, " -j RETURN"), line(mangleRanges, int(id), match, " -j RETURN")}
	case nodePortTCP, nodePortUDP:
		return []dataplane.Object{line(natNodePort, 2*int(id)+1, b.match(id, "dst"), protocolWord(id), " -j KUBE-MARK-MASQ")}
	case nodePortLocalTCP, nodePortLocalUDP:
		return []dataplane.Object{line(natNodePort, 2*int(id)-2, b.match(id, "dst"), protocolWord(id), " -j RETURN")}
	case nodePortSCTP:
		return []dataplane.Object{line(natNodePort, 2*int(id)+1, b.match(id, "dst,dst"), protocolWord(id), " -j KUBE-MARK-MASQ")}
	case nodePortLocalSCTP:
		return []dataplane.Object{line(natNodePort, 2*int(id)-2, b.match(id, "dst,dst"), protocolWord(id), " -j RETURN")}
	case healthCheckNodePort:
		return []dataplane.Object{line(filterNodePort, 0, b.match(id, "dst"), " -j ACCEPT")}
	case portolanInside, portolanDrop, ipvsIPs:
		return nil // their rules are in Base
	}
	panic(fmt.Sprintf("ipvs: no rules are known for set %d", id))
}

func protocolWord(id setID) string {
	switch id {
	case nodePortTCP, nodePortLocalTCP:
		return " -p tcp"
	case nodePortUDP, nodePortLocalUDP:
		return " -p udp"
	}
	return " -p sctp"
}

// rangeRules drop what no source range admits: what comes from elsewhere in filter,
// and what this node sends in mangle, before IPVS takes it.
func (b *Backend) rangeRules() []dataplane.Object {
	const last = int(setCount)
	match := b.match(loadBalancerFW, "dst,dst")
	return []dataplane.Object{
		line(filterProxyFW, 0, match, " -j KUBE-SOURCE-RANGES-FIREWALL"),
		outJump.object(len(jumps)),
		line(mangleOut, 0, match, " -j ", chainOf(mangleRanges)),
		line(mangleRanges, last, "-j DROP"),
	}
}
