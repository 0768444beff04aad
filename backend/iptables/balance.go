package iptables

import (
	"fmt"
	"strconv"
	"time"

	"portolan/kernel/iptables"
	"portolan/service"
)

// balancers write the chains that balance over the lists of endpoints that some
// route leads to.
func (p *port) balancers() {
	var lists [2][]service.Endpoint // by policy
	for i := range p.pf.Frontends {
		for _, r := range p.pf.Frontends[i].Routes {
			if r.Verdict == service.Forward {
				lists[r.Policy] = r.Endpoints
			}
		}
	}
	clusterIP := &p.pf.Frontends[0]
	entry := clusterIP.Route(service.FromOutside)
	for policy, endpoints := range lists {
		if len(endpoints) == 0 {
			continue
		}
		chain, rank := p.policyChain(service.Policy(policy)), 0
		if entry.Verdict == service.Forward && int(entry.Policy) == policy {
			rank = p.markAtClusterIP(chain, clusterIP)
		}
		if p.b.options.Layout == Compact {
			p.choose(chain, rank, service.Policy(policy), endpoints, clusterIP)
		} else {
			p.balance(chain, rank, endpoints, clusterIP)
		}
	}
}

// markAtClusterIP writes the rule that has what is sent to the cluster IP
// masqueraded, all of it or what does not come from pods, and returns the rank of
// the next rule.
func (p *port) markAtClusterIP(chain string, f *service.Frontend) int {
	who := ""
	pod, host, outside := f.Routes[service.FromPod].Masquerade, f.Routes[service.FromHost].Masquerade, f.Routes[service.FromOutside].Masquerade
	switch {
	case !pod && !host && !outside:
		return 0
	case pod && host && outside:
	case !pod && host && outside:
		who = " ! " + detector(p.node, p.b.options.Family)
	default:
		panic(fmt.Sprintf("iptables: no rule masquerades at a cluster IP for pods %v, the node %v, others %v", pod, host, outside))
	}
	if p.b.options.Layout == Compact { // nothing else leads here with the address as it was
		p.rule(chain, 0, "", "-d ", f.Addr.String(), who, " -j KUBE-MARK-MASQ")
		return 1
	}
	p.rule(chain, 0, "", `-m comment --comment "`, p.name, ` cluster IP" `, p.match, " -d ", f.Addr.String(),
		" --dport ", strconv.Itoa(int(f.Port)), who, " -j KUBE-MARK-MASQ")
	return 1
}

// detector matches traffic from pods.
func detector(node service.Node, f service.Family) string {
	d := node.Detector
	if cidr, ok := d.CIDR(f); ok {
		return "-s " + prefixText(cidr)
	}
	if d.Bridge != "" {
		return "-i " + d.Bridge
	}
	return "-i " + d.InterfacePrefix + "+"
}

// balance writes the affinity rules, then the choice.
func (p *port) balance(chain string, rank int, endpoints []service.Endpoint, f *service.Frontend) {
	addresses, chains := p.endpointNames(endpoints)
	if f.Affinity > 0 {
		seconds := strconv.FormatInt(int64(f.Affinity/time.Second), 10)
		for i, a := range addresses {
			c := p.endpointComment(a)
			p.rule(chain, rank, "", c[0], c[1], c[2], c[3], "-m recent --name ", chains[i], " --rcheck --seconds ", seconds,
				" --reap -j ", chains[i])
			rank++
		}
	}
	if f.Algorithm == service.RoundRobin {
		p.takeTurns(chain, rank, endpoints)
		return
	}
	// A rule is taken with the part of its endpoint in what is left by those before
	// it, the last always: 1/n, then 1/(n-1), where all are alike.
	ratios := service.Ratios(endpoints)
	left := 0
	for _, r := range ratios {
		left += r
	}
	for i, a := range addresses {
		c := p.endpointComment(a)
		if ratios[i] == left {
			p.rule(chain, rank, "", c[0], c[1], c[2], c[3], "-j ", chains[i])
		} else {
			p.rule(chain, rank, "", c[0], c[1], c[2], c[3], "-m statistic --mode random --probability ",
				probability(ratios[i], left), " -j ", chains[i])
		}
		left -= ratios[i]
		rank++
	}
}

// takeTurns leads to one endpoint after the other, to each as often as its weight:
// of n rules the first takes one connection in n, the next one in n-1 of the others,
// and the last what is left.
func (p *port) takeTurns(chain string, rank int, endpoints []service.Endpoint) {
	addresses, chains := p.endpointNames(service.Slots(endpoints))
	for i, a := range addresses {
		c := p.endpointComment(a)
		if i == len(addresses)-1 {
			p.rule(chain, rank+i, "", c[0], c[1], c[2], c[3], "-j ", chains[i])
			return
		}
		p.rule(chain, rank+i, "", c[0], c[1], c[2], c[3], "-m statistic --mode nth --every ",
			strconv.Itoa(len(addresses)-i), " --packet 0 -j ", chains[i])
	}
}

// endpointComment are the parts of the comment of a rule that leads to an endpoint.
func (p *port) endpointComment(address string) [4]string {
	if p.node.LargeCluster {
		return [4]string{}
	}
	return [4]string{`-m comment --comment "`, p.name + " -> ", address, `" `}
}

// endpointChains write KUBE-SEP for every endpoint in use.
func (p *port) endpointChains() {
	comment := "-m comment --comment " + p.name + " "
	if p.node.LargeCluster {
		comment = ""
	}
	addresses, chains := p.endpointNames(p.pf.Choice.Reachable)
	for i, e := range p.pf.Choice.Reachable {
		chain := "nat/" + chains[i]
		p.rule(chain, 0, "", comment, "-s ", e.Addr.Addr().String(), " -j KUBE-MARK-MASQ")
		if p.pf.Frontends[0].Affinity > 0 {
			p.rule(chain, 1, "", comment, "-m recent --name ", chains[i], " --set ", p.match, " -j DNAT --to-destination ", addresses[i])
		} else {
			p.rule(chain, 1, "", comment, p.match, " -j DNAT --to-destination ", addresses[i])
		}
	}
}

// endpointNames returns addresses and chain names of the endpoints.
func (p *port) endpointNames(endpoints []service.Endpoint) (addresses, chains []string) {
	both := make([]string, 2*len(endpoints))
	addresses, chains = both[:len(endpoints)], both[len(endpoints):]
	for i, e := range endpoints {
		addresses[i] = e.Addr.String()
		chains[i] = chainOf(endpointChain) + hash(p.name, string(p.pf.Port.Protocol), addresses[i])
	}
	return addresses, chains
}

// Texts of 1/n for the sizes that Services usually have.
var probabilities = func() (out [128]string) {
	for n := 2; n < len(out); n++ {
		out[n] = iptables.Probability(1, n)
	}
	return out
}()

func probability(part, whole int) string {
	if part == 1 && whole < len(probabilities) {
		return probabilities[whole]
	}
	return iptables.Probability(part, whole)
}
