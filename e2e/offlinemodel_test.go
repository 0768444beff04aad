package e2e

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"portolan/config"
	"portolan/lab"
	"portolan/netfilter"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
)

// paperModel reads manifests as the commands do, for a node with given addresses.
// localhost tells whether the proxy lets NodePorts answer on loopback.
func paperModel(ctx context.Context, args []string, local []netip.Addr) (model *service.Snapshot, localhost bool, err error) {
	set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return nil, false, err
	}
	c, _, err := flags.Config(config.FlagsFirst)
	if err != nil {
		return nil, false, err
	}
	s := kube.Settings{NodeName: c.Hostname, DetectMode: kube.DetectMode(c.DetectLocalMode), ClusterCIDRs: c.ClusterCIDRs, Bridge: c.Bridge, InterfacePrefix: c.InterfacePrefix,
		MasqueradeAll: c.MasqueradeAll, NodePortsPrimary: c.NodePortPrimary, NodePorts: service.NodePortAddresses{Prefixes: c.NodePortAddresses, Localhost: c.LocalhostNodePorts, Local: local}}
	s.NodePorts.Localhost = s.NodePorts.AllowsLocalhost()
	model, problems := manifests.New(c.Options.Manifests, kube.NewCluster(s)).Load(ctx)
	for _, p := range problems {
		if !p.Warning {
			return nil, false, p
		}
	}
	return model, s.NodePorts.Localhost, nil
}

// start is the packet of a flow at the first node it comes to.
func (o *offline) start(f flow) (packet trace.Flow, node string) {
	packet = trace.Flow{Src: f.source, Dst: f.to.Addr(), SrcPort: 45678, DstPort: f.to.Port(), Proto: netfilter.TCP}
	switch f.proto {
	case "udp":
		packet.Proto = netfilter.UDP
	case "sctp":
		packet.Proto = netfilter.SCTP
	}
	if n := o.nodes[f.from]; n != nil {
		packet.Local = true
		if !packet.Src.IsValid() {
			packet.Src = n.source(packet.Dst)
			if dummy := n.trace.Host().Interface("kube-ipvs0"); dummy != nil && dummy.Has(packet.Dst) {
				packet.Src = packet.Dst // as the kernel does with addresses of its own
			}
		}
		return packet, f.from
	}
	own := o.topology.Client
	if name, is := strings.CutPrefix(f.from, "pod:"); is {
		i := slices.IndexFunc(o.topology.Pods, func(p lab.PodSpec) bool { return p.Name == name })
		own, node, packet.In = o.topology.Pods[i].Addrs, o.topology.Pods[i].Node, "cni0"
	} else {
		node, packet.In = o.entry(f), "eth0"
	}
	if !packet.Src.IsValid() {
		packet.Src = sameFamily(own, packet.Dst)
	}
	return packet, node
}

// source is the address a process of the node sends from.
func (n *paperNode) source(to netip.Addr) netip.Addr {
	switch {
	case to.IsLoopback(), slices.Contains(n.addresses(), to):
		return to
	case slices.ContainsFunc(n.spec.Pods, func(p netip.Prefix) bool { return p.Contains(to) }):
		return sameFamily(n.bridge, to)
	}
	return sameFamily(n.spec.Addrs, to)
}

func sameFamily(list []netip.Addr, like netip.Addr) netip.Addr {
	for _, a := range list {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// entry is the node that answers for a flow's destination: the caller's own, the one
// that has the address, or the one the client's routes lead to.
func (o *offline) entry(f flow) string {
	if o.nodes[f.from] != nil {
		return f.from
	}
	for name, n := range o.nodes {
		if slices.Contains(append(slices.Clone(n.spec.Addrs), n.bridge...), f.to.Addr()) {
			return name
		}
	}
	if name, is := strings.CutPrefix(f.from, "pod:"); is {
		i := slices.IndexFunc(o.topology.Pods, func(p lab.PodSpec) bool { return p.Name == name })
		return o.topology.Pods[i].Node
	}
	best := lab.RouteSpec{}
	for _, r := range o.topology.Routes {
		if r.To.Contains(f.to.Addr()) && (best.Node == "" || r.To.Bits() > best.To.Bits()) {
			best = r
		}
	}
	return best.Node
}

// seen is the source address that a pod must see.
func (o *offline) seen(f flow, pod string, kept netip.Addr) netip.Addr {
	i := slices.IndexFunc(o.topology.Pods, func(p lab.PodSpec) bool { return p.Name == pod })
	at := o.topology.Pods[i].Node
	switch f.seen {
	case "kept":
		return kept
	case "hairpin":
		if f.from != "pod:"+pod {
			return kept
		}
		return sameFamily(o.nodes[at].bridge, kept)
	case "masq":
		if entry := o.nodes[o.entry(f)]; at != entry.spec.Name {
			return sameFamily(entry.spec.Addrs, f.to.Addr())
		}
		return sameFamily(o.nodes[at].bridge, f.to.Addr())
	}
	return netip.MustParseAddr(f.seen)
}

// decided compares what happens on paper with what package service decides at the
// node that answers: the one that has the address, else the node of entry.
func (o *offline) decided(f flow, packet trace.Flow, shares map[arrival]*big.Rat) error {
	n := o.nodes[o.entry(f)]
	for _, owner := range o.nodes {
		if slices.Contains(append(slices.Clone(owner.spec.Addrs), owner.bridge...), packet.Dst) {
			n = owner
		}
	}
	fe, ok := n.frontend(f)
	if !ok {
		for a := range shares {
			if a.verdict == lab.Answered {
				return fmt.Errorf("%s answers, but no Service has this address", a.pod)
			}
		}
		return nil
	}
	class := service.FromOutside
	cidr, detects := n.model.Node.Detector.CIDR(service.FamilyOf(packet.Dst))
	switch {
	case packet.Local && o.nodes[f.from] == n:
		class = service.FromHost
	case detects && cidr.Contains(packet.Src):
		class = service.FromPod
	}
	route := fe.Route(class)
	if o.mode == "ipvs" && class == service.FromHost && fe.Kind == service.ClusterIP {
		route.Masquerade = true // the address is the node's own, and its source with it
	}
	if limited := len(fe.SourceRanges) > 0; limited && route.Verdict == service.Forward &&
		!slices.ContainsFunc(fe.SourceRanges, func(p netip.Prefix) bool { return p.Contains(packet.Src) }) {
		route.Verdict = service.Drop
	}
	want := map[service.Verdict]lab.Verdict{service.Forward: lab.Answered, service.Reject: lab.Refused, service.Drop: lab.TimedOut}[route.Verdict]
	var pods []string
	for _, e := range route.Endpoints {
		pods = append(pods, o.pods[e.Addr.Addr()].Name)
	}
	for a := range shares {
		if a.verdict != want || want == lab.Answered && !slices.Contains(pods, a.pod) {
			return fmt.Errorf("%v %s, but the Route is %v to %v: %s", a.verdict, a.pod, route.Verdict, pods, route.Reason)
		}
		if hairpin := f.from == "pod:"+a.pod; want == lab.Answered && a.masked != (route.Masquerade || hairpin) {
			return fmt.Errorf("%s sees %v, but the Route says masquerade %t", a.pod, a.seen, route.Masquerade)
		}
	}
	if want == lab.Answered && len(shares) != len(pods) {
		return fmt.Errorf("%d answer, but the Route is to %v", len(shares), pods)
	}
	return nil
}

// frontend finds what the node answers for a flow with.
func (n *paperNode) frontend(f flow) (service.Frontend, bool) {
	family := service.FamilyOf(f.to.Addr())
	addrs := n.model.Node.NodePorts
	nodePort := slices.Contains(n.addresses(), f.to.Addr()) && (addrs.All(family) || slices.Contains(addrs.Selected(family), f.to.Addr()))
	if f.to.Addr().IsLoopback() {
		nodePort = family == service.IPv4 && addrs.AllowsLocalhost() || slices.Contains(n.listening, f.to.Addr())
	}
	for svc := range n.model.All() {
		for _, pf := range service.Decide(n.model.Node, svc, family) {
			for _, fe := range pf.Frontends {
				here := fe.Addr == f.to.Addr() || fe.Kind == service.NodePort && nodePort
				if here && fe.Port == f.to.Port() && string(fe.Protocol) == f.proto {
					return fe, true
				}
			}
		}
	}
	return service.Frontend{}, false
}
