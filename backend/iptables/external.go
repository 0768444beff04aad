package iptables

import (
	"net/netip"
	"slices"

	"portolan/service"
)

// externalChains write KUBE-EXT, by which all external addresses are reached,
// and KUBE-FW, which lets only the source ranges through to it. The external
// addresses of a port have the same routes.
func (p *port) externalChains() {
	external := p.pf.Frontends[1:]
	if len(external) == 0 || !answers(&external[0]) {
		return
	}
	p.externalChain(&external[0])
	if i := slices.IndexFunc(external, func(f service.Frontend) bool { return limited(&f) }); i >= 0 {
		p.firewall(external[i].SourceRanges)
	}
}

// externalChain sends on first whoever is not held to the endpoints that an
// outside client gets.
func (p *port) externalChain(f *service.Frontend) {
	rank := 0
	add := func(parts ...string) {
		p.rule(p.ext, rank, "", parts...)
		rank++
	}
	pod, host, outside := &f.Routes[service.FromPod], &f.Routes[service.FromHost], &f.Routes[service.FromOutside]
	if outside.Masquerade {
		add(`-m comment --comment "masquerade traffic for `, p.name, ` external destinations" -j KUBE-MARK-MASQ`)
	}
	if pod.Policy != outside.Policy {
		add(`-m comment --comment "pod traffic for `, p.name, ` external destinations" `,
			detector(p.node, p.b.options.Family), " -j ", chainOf(p.policyChain(pod.Policy)))
	}
	if host.Policy != outside.Policy {
		if host.Masquerade {
			add(`-m comment --comment "masquerade LOCAL traffic for `, p.name,
				` external destinations" -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ`)
		}
		add(`-m comment --comment "route LOCAL traffic for `, p.name,
			` external destinations" -m addrtype --src-type LOCAL -j `, chainOf(p.policyChain(host.Policy)))
	}
	if outside.Verdict == service.Forward {
		add("-j ", chainOf(p.policyChain(outside.Policy)))
	}
}

// firewall ends with a rule that does nothing but say what happens: traffic that
// falls off is not translated, and so meets the DROP in filter.
func (p *port) firewall(sources []netip.Prefix) {
	for i, r := range sources {
		from := " -s " + prefixText(r)
		if r.Bits() == 0 {
			from = "" // iptables-save leaves such a source out
		}
		p.rule(p.fw, i, "", `-m comment --comment "`, p.name, ` loadbalancer IP"`, from, " -j ", chainOf(p.ext))
	}
	p.rule(p.fw, len(sources), "", `-m comment --comment "other traffic to `, p.name, ` will be dropped by KUBE-PROXY-FIREWALL"`)
}

// prefixText writes a prefix as a rule does: masked, a single address without
// its length.
func prefixText(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Masked().String()
}
