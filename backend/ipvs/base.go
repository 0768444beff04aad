package ipvs

import (
	"portolan/dataplane"
	"portolan/service"
)

// Base returns what does not depend on any Service: the device, the sets, jumps,
// chains and their fixed rules.
func (b *Backend) Base(node service.Node) []dataplane.Object {
	out := append(b.setObjects(), dataplane.Object{
		Key:  dataplane.Key{Container: deviceContainer, Rank: dataplane.Keyed, Name: DeviceName},
		Body: "dummy",
	})
	for _, c := range topChains {
		out = append(out, chain(c))
	}
	for i, j := range jumps {
		out = append(out, j.object(i))
	}
	loopback := "127.0.0.0/8"
	if b.ipv6() {
		loopback = "::1"
	}
	out = append(out,
		line(natServices, rankLoopback, "-s ", loopback, " -j RETURN"),
		line(natServices, rankNodePorts, "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT"),
		line(natLoadBalancer, 1, "-j KUBE-MARK-MASQ"),
		line(filterRanges, int(setCount), "-j DROP"),
	)
	out = append(out, b.masquerade()...)
	out = append(out, b.forward()...)
	return append(out, b.accessFilter()...)
}

// masquerade is KUBE-POSTROUTING, and KUBE-MARK-MASQ, which leads there.
func (b *Backend) masquerade() []dataplane.Object {
	random := ""
	if b.options.RandomFully {
		random = " --random-fully"
	}
	return []dataplane.Object{
		line(natPostrouting, 1, "-m mark ! --mark ", b.mark, "/", b.mark, " -j RETURN"),
		// The mark goes, so that a packet that passes POSTROUTING again, for example
		// when it leaves a tunnel, is not masqueraded twice.
		line(natPostrouting, 2, "-j MARK --xor-mark ", b.mark),
		line(natPostrouting, 3, `-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE`, random),
		line(natMarkMasq, 1, "-j MARK --or-mark ", b.mark),
	}
}

// forward is KUBE-FORWARD.
func (b *Backend) forward() []dataplane.Object {
	rules := []dataplane.Object{
		line(filterForward, 2, `-m comment --comment "kubernetes forwarding rules" -m mark --mark `, b.mark, "/", b.mark, " -j ACCEPT"),
		line(filterForward, 3, `-m comment --comment "kubernetes forwarding conntrack rule" -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`),
	}
	if !b.options.LiberalTCP {
		rules = append(rules, line(filterForward, 1, "-m conntrack --ctstate INVALID -j DROP"))
	}
	return rules
}

// accessFilter keeps what listens on this host from answering on the addresses of
// Services, which are local to it.
func (b *Backend) accessFilter() []dataplane.Object {
	rules := []dataplane.Object{
		line(filterIPVS, 0, "-m conntrack --ctstate NEW ", b.bare(portolanDrop, "dst,dst"), " -j DROP"),
		line(filterIPVS, 1, b.bare(portolanInside, "dst,dst"), " -m conntrack --ctstate DNAT -j RETURN"),
		line(filterIPVS, 10, "-m conntrack --ctstate NEW ", b.bare(ipvsIPs, "dst"), " -j REJECT"),
	}
	for i, id := range []setID{loadBalancer, clusterIP, externalIP, externalIPLocal} {
		rules = append(rules, line(filterIPVS, 2+i, b.bare(id, "dst,dst"), " -j RETURN"))
	}
	return append(rules, line(filterIPVS, 6, b.bare(healthCheckNodePort, "dst"), " -j RETURN"))
}

// markClusterIPs has what is sent to cluster IPs masqueraded, all of it or what does
// not come from pods. Where nothing is to be, it is still what this node sends, which
// carries the cluster IP itself as source.
func (b *Backend) markClusterIPs(node service.Node, f *service.Frontend) dataplane.Object {
	const rank = rankMarks + 5
	dst := b.match(clusterIP, "dst,dst")
	pod, outside := f.Routes[service.FromPod].Masquerade, f.Routes[service.FromOutside].Masquerade
	switch {
	case pod && outside:
		return line(natServices, rank, dst, " -j KUBE-MARK-MASQ")
	case outside:
		return line(natServices, rank, dst, " ! ", detector(node, b.options.Family), " -j KUBE-MARK-MASQ")
	}
	return line(natServices, rank, b.match(clusterIP, "src,dst"), " -j KUBE-MARK-MASQ")
}

// detector matches traffic from pods.
func detector(node service.Node, f service.Family) string {
	d := node.Detector
	if cidr, ok := d.CIDR(f); ok {
		if cidr.IsSingleIP() {
			return "-s " + cidr.Addr().String()
		}
		return "-s " + cidr.Masked().String()
	}
	if d.Bridge != "" {
		return "-i " + d.Bridge
	}
	return "-i " + d.InterfacePrefix + "+"
}
