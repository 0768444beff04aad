package ipvs

import (
	"fmt"
	"net/netip"
	"slices"

	"portolan/dataplane"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// A virtual server has one list of real servers. Where the policy of an external
// address is Local, pods and this node are to reach endpoints everywhere, and only
// others those on this node. So what pods and this node send there is translated to
// another virtual server, which has the endpoints of the cluster, before IPVS sees
// it: that of the cluster IP or, where the cluster IP is held to this node too, one
// on the cluster IP that nobody else may use.

// inside writes the rules for the external addresses of a port.
func (r *rendering) inside(pf service.PortFrontends, protocol ipvs.Protocol) {
	external := pf.Frontends[1:]
	if len(external) == 0 {
		return
	}
	host, outside := external[0].Route(service.FromHost), external[0].Route(service.FromOutside)
	if host.Policy == outside.Policy || host.Verdict != service.Forward {
		r.claimInside(external, protocol)
		return
	}
	to := netip.AddrPortFrom(pf.Frontends[0].Addr, pf.Frontends[0].Port)
	if pf.Frontends[0].Route(service.FromPod).Policy != host.Policy {
		to = netip.AddrPortFrom(to.Addr(), r.hiddenPort())
		t := r.target(ipvs.ID{Protocol: protocol, Addr: to}, &pf.Frontends[0], host)
		t.join(portolanInside)
		r.server(t)
	}
	pods := "" // who are told from others, and reach endpoints everywhere
	if external[0].Route(service.FromPod).Policy == host.Policy {
		pods = detector(r.node, r.b.options.Family)
	}
	led := false
	for i := range external {
		f := &external[i]
		addrs := []netip.Addr{f.Addr}
		if f.Kind == service.NodePort {
			addrs = nodePortAddrs(r.node, r.b.options.Family)
		}
		for _, a := range addrs {
			r.redirect(pf.Name.String(), ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(a, f.Port)}, to, pods)
			led = true
		}
	}
	if led { // a NodePort may answer on loopback alone
		r.objects = append(r.objects, r.b.insideRules(pods)...)
	}
}

// insideRules lead to the rules of addresses, but for sources that an address does
// not admit: they go on to the rule that drops them.
func (b *Backend) insideRules(pods string) []dataplane.Object {
	const to = " -j KUBE-PORTOLAN-TO"
	rules := []dataplane.Object{
		line(natServices, rankInsideHost, "-m addrtype --src-type LOCAL -j ", chainOf(natInside)),
		line(natInside, 0, b.bare(loadBalancerSourceCIDR, "dst,dst,src"), to),
		line(natInside, 1, b.bare(loadBalancerSourceIP, "dst,dst,src"), to),
		line(natInside, 2, b.bare(loadBalancerFW, "dst,dst"), " -j RETURN"),
		line(natInside, 3, "-j KUBE-PORTOLAN-TO"),
	}
	if pods != "" {
		rules = append(rules, line(natServices, rankInsidePods, pods, " -j ", chainOf(natInside)))
	}
	return rules
}

// hiddenPort is a port that the Service does not have, for each of its ports another.
func (r *rendering) hiddenPort() uint16 {
	for port := uint16(65535); ; port-- {
		if r.hidden[port] || slices.ContainsFunc(r.svc.Ports, func(p service.Port) bool { return p.Port == port }) {
			continue
		}
		if r.hidden == nil {
			r.hidden = map[uint16]bool{}
		}
		r.hidden[port] = true
		return port
	}
}

// Ranks in nat KUBE-PORTOLAN-TO: marks go on to what translates.
const (
	rankMark = iota
	rankTo
)

// redirect writes the rules of one address. What this node sends is masqueraded, but
// what looks like a pod's is left as it is.
func (r *rendering) redirect(name string, from ipvs.ID, to netip.AddrPort, pods string) {
	comment := `-m comment --comment "` + name + ` local traffic" `
	match := fmt.Sprintf("-m %s -p %s -d %s --dport %d", from.Protocol, from.Protocol, from.Addr.Addr(), from.Addr.Port())
	notPods := ""
	if pods != "" {
		notPods = " ! " + pods
	}
	r.translation(from, rankMark, comment+"-m addrtype --src-type LOCAL "+match+notPods+" -j KUBE-MARK-MASQ")
	r.translation(from, rankTo, comment+match+" -j DNAT --to-destination "+to.String())
}

// claimInside keeps a younger Service that asks for one of the addresses from getting
// what pods and this node send there. NodePorts are one Service's by the API.
func (r *rendering) claimInside(external []service.Frontend, protocol ipvs.Protocol) {
	for i := range external {
		if f := &external[i]; f.Kind != service.NodePort {
			id := ipvs.ID{Protocol: protocol, Addr: netip.AddrPortFrom(f.Addr, f.Port)}
			r.translation(id, rankMark, "")
			r.translation(id, rankTo, "")
		}
	}
}

func (r *rendering) translation(from ipvs.ID, rank int, body string) {
	r.objects = append(r.objects, dataplane.Object{
		Key:  dataplane.Key{Container: natTo, Rank: rank, Name: nameOf(from)},
		Body: body,
	})
}
