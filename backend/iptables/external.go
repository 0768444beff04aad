package iptables

import (
	"net/netip"

	"portolan/service"
)

// externalChains write KUBE-EXT, by which all external addresses are reached,
// and KUBE-FW, which lets only the source ranges through to it.
func (p *port) externalChains() {
	if !p.pf.Choice.Any || !p.svc.ExternallyAccessible(p.pf.Port, p.b.options.Family) {
		return
	}
	rank := 0
	add := func(parts ...string) {
		p.rule(p.ext, rank, "", parts...)
		rank++
	}
	if p.svc.ExternalPolicy == service.Cluster {
		add(`-m comment --comment "masquerade traffic for `, p.name, ` external destinations" -j KUBE-MARK-MASQ`)
	} else {
		// Pods and this node are not held to the local endpoints.
		if p.node.Detector.Detects(p.b.options.Family) {
			add(`-m comment --comment "pod traffic for `, p.name, ` external destinations" `,
				detector(p.node, p.b.options.Family), " -j ", chainOf(p.cluster))
		}
		add(`-m comment --comment "masquerade LOCAL traffic for `, p.name,
			` external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ`)
		add(`-m comment --comment "route LOCAL traffic for `, p.name,
			` external destinations" -m addrtype --src-type LOCAL -j `, chainOf(p.cluster))
	}
	if p.external.Verdict == service.Forward {
		add("-j ", chainOf(p.policyChain(p.external.Policy)))
	}
	if p.usesFirewall() {
		p.firewall()
	}
}

// firewall ends with a rule that does nothing but say what happens: traffic that
// falls off is not translated, and so meets the DROP in filter.
func (p *port) firewall() {
	rank := 0
	add := func(parts ...string) {
		p.rule(p.fw, rank, "", parts...)
		rank++
	}
	allow := func(source string) {
		add(`-m comment --comment "`, p.name, ` loadbalancer IP"`, source, " -j ", chainOf(p.ext))
	}
	f := p.b.options.Family
	for _, r := range p.svc.Ranges(f) {
		if r.Bits() == 0 {
			allow("") // iptables-save leaves such a source out
		} else {
			allow(" -s " + prefixText(r))
		}
	}
	if p.svc.NodeInRanges(p.node, f) {
		for _, vip := range p.loadBalancerIPs() {
			allow(" -s " + vip)
		}
	}
	add(`-m comment --comment "other traffic to `, p.name, ` will be dropped by KUBE-PROXY-FIREWALL"`)
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
		if p.svc.AffinityTimeout > 0 {
			p.rule(chain, 1, "", comment, "-m recent --name ", chains[i], " --set ", p.match, " -j DNAT --to-destination ", addresses[i])
		} else {
			p.rule(chain, 1, "", comment, p.match, " -j DNAT --to-destination ", addresses[i])
		}
	}
}

// prefixText writes a prefix as a rule does: masked, a single address without
// its length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Masked().String()
}
