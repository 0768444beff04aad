package judge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"portolan/lab"
	"portolan/netfilter"
	"portolan/service"
	"portolan/source/kube"
	"portolan/trace"
)

// round is one generated node: Services, settings of the proxy and of the kernel,
// foreign rules, and probes.
type round struct {
	sender
	bench   *bench
	both    *trace.Tracer // see replies
	args    []string
	targets []target
	loose   bool // conntrack takes connections up in their middle
}

// prepare draws a node and makes it so.
func (w *world) prepare(ctx context.Context, g generator, services int) (*round, error) {
	r := &round{sender: sender{w: w, g: g}, args: g.args()}
	objects := nodes()
	for i := range services {
		objects = append(objects, g.service(i)...)
	}
	text, err := documents(objects)
	if err != nil {
		return nil, err
	}
	before4, after4 := g.foreign(netfilter.IPv4)
	before6, after6 := g.foreign(netfilter.IPv6)
	if err := r.kernel(ctx); err != nil {
		return nil, err
	}
	if err := w.load(ctx, before4, before6); err != nil {
		return nil, err
	}
	if err := w.program(ctx, text, r.args); err != nil {
		return nil, err
	}
	if err := w.load(ctx, after4, after6); err != nil {
		return nil, err
	}
	// Which targets there are depends on the Services alone.
	snapshot, err := w.model(ctx, kube.Settings{NodeName: judged, ClusterCIDRs: lab.PodNetworks, NodePorts: service.NodePortAddresses{Localhost: true}})
	if err != nil {
		return nil, err
	}
	r.targets = targets(snapshot)
	if err := w.watch(ctx); err != nil {
		return nil, err
	}
	host, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	r.bench = newBench(newRuleset(host, w.variant, w.devices))
	return r, nil
}

func (w *world) load(ctx context.Context, sheets ...*sheet) error {
	for _, s := range sheets {
		if err := w.restore(ctx, &w.node.Host, s.family, s.String()); err != nil {
			return err
		}
	}
	return nil
}

// args draws how the proxy is set.
func (g generator) args() []string {
	args := []string{"--proxy-mode", "iptables"}
	switch g.IntN(6) {
	case 0:
	case 1:
		args = append(args, "--detect-local-mode", "BridgeInterface", "--pod-bridge-interface", "cni0")
	case 2:
		args = append(args, "--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "cni")
	case 3:
		args = append(args, "--detect-local-mode", "NodeCIDR")
	default:
		args = append(args, "--cluster-cidr", clusterCIDR())
	}
	if g.chance(15) {
		args = append(args, "--masquerade-all")
	}
	if g.chance(20) {
		args = append(args, "--iptables-masquerade-bit", one(g, "15", "5"))
	}
	switch g.IntN(8) {
	case 0:
		args = append(args, "--nodeport-addresses", "primary")
	case 1:
		args = append(args, "--nodeport-addresses", "192.0.2.0/24,127.0.0.0/8")
	case 2:
		args = append(args, "--iptables-localhost-nodeports=false")
	}
	return args
}

// kernel draws settings of the kernel, routes by mark, and sets.
func (r *round) kernel(ctx context.Context) error {
	g, w := r.g, r.w
	bit := map[bool]string{true: "1", false: "0"}
	r.loose = g.chance(40)
	for path, value := range map[string]string{
		"net/netfilter/nf_conntrack_tcp_loose":      bit[r.loose],
		"net/netfilter/nf_conntrack_tcp_be_liberal": bit[g.chance(25)],
		"net/ipv4/conf/all/rp_filter":               one(g, "0", "0", "1", "2"),
		"net/bridge/bridge-nf-call-iptables":        bit[!g.chance(10)],
		"net/bridge/bridge-nf-call-ip6tables":       bit[!g.chance(10)],
		"net/ipv4/ip_forward":                       bit[!g.chance(3)],
	} {
		if err := w.sysctl(path, value); err != nil {
			return fmt.Errorf("judge: %s: %w", path, err)
		}
	}
	for _, six := range []string{"-4", "-6"} {
		if g.chance(50) {
			continue
		}
		if err := w.run(ctx, "ip", six, "rule", "add", "fwmark", "0x20/0x20", "lookup", "100"); err != nil {
			return err
		}
		way := one(g, "blackhole default", "unreachable default", "prohibit default", "default via "+map[string]string{"-4": "192.0.2.12", "-6": "2001:db8::12"}[six])
		if err := w.run(ctx, "ip", append([]string{six, "route", "add", "table", "100"}, strings.Fields(way)...)...); err != nil {
			return err
		}
	}
	return r.sets(ctx)
}

// sets makes the sets that wild rules ask.
func (r *round) sets(ctx context.Context) error {
	for _, line := range []string{"create J4-ports hash:ip,port family inet", "create J6-ports hash:ip,port family inet6", "create J4-nets hash:net family inet", "create J6-nets hash:net family inet6",
		"add J4-nets 10.244.1.0/29", "add J4-nets 10.96.1.0/27", "add J6-nets fd00:96::100/123", "add J6-nets fd00:244:2::/64", "add J4-nets 10.96.1.8/30 nomatch"} {
		if err := r.w.run(ctx, "ipset", strings.Fields(line)...); err != nil {
			return err
		}
	}
	for i := range 8 {
		for _, entry := range []string{fmt.Sprintf("J4-ports 10.96.1.%d,%s:%d", 1+i, one(r.g, "tcp", "udp"), one(r.g, 80, 53, 443)), fmt.Sprintf("J6-ports fd00:96::%x,%s:%d", 0x100+i, one(r.g, "tcp", "udp"), one(r.g, 80, 53, 443))} {
			if err := r.w.run(ctx, "ipset", append([]string{"add"}, strings.Fields(entry)...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// probes draws packets.
func (r *round) probes(n int) (out []probe, err error) {
	for len(out) < n {
		p, from := r.probe()
		if !p.dst.IsValid() {
			continue
		}
		if !p.src.IsValid() {
			if p, err = r.from(p, from); err != nil {
				return nil, err
			}
		}
		p.from = from
		out = append(out, r.stamp(p))
	}
	return out, nil
}

// probe draws one packet without its source, and who sends it. The shares of the
// kinds make sure that the rare ones are not rare.
func (r *round) probe() (p probe, from string) {
	g := r.g
	k := g.IntN(100)
	switch {
	case k < 14:
		return r.hairpin()
	case k < 25:
		return r.localhost()
	case k < 38:
		return r.invalid()
	case k < 50:
		return r.direct()
	case k < 53:
		return r.spoofed()
	case k < 60:
		return r.refused()
	case k < 64:
		p, from = r.toService()
		p.proto, p.dport = netfilter.ICMP, 0
		if p.dst.Is6() {
			p.proto = netfilter.ICMPv6
		}
		return p, from
	}
	p, from = r.toService()
	if g.chance(4) {
		p.ttl = uint8(2 + g.IntN(2))
		if from == judged || r.w.ports[from] != "" {
			p.ttl--
		}
	}
	return p, from
}

// probe is a packet to a target, without its source.
func (t target) probe() probe {
	p := probe{dst: t.Addr, dport: t.Port, proto: netfilter.TCP, policyLocal: t.local()}
	if t.Protocol == service.UDP {
		p.proto = netfilter.UDP
	}
	return p
}

// toService is a packet to something the node answers for.
func (r *round) toService() (probe, string) {
	t := one(r.g, r.targets...)
	p := t.probe()
	senders := append([]string{visitor, judged, outside, outside}, podsHere...)
	if t.Kind == service.NodePort {
		senders = append(senders, other, stranger2, podsThere[0])
		if p.dst.Is4() && r.g.chance(20) {
			p.dst = netip.MustParseAddr("10.244.1.1") // the bridge's address
		}
	}
	return p, one(r.g, senders...)
}

// hairpin is a packet of an endpoint to its own Service; one with few others, so
// that it is likely to reach itself.
func (r *round) hairpin() (probe, string) {
	for range 200 {
		t := one(r.g, r.targets...)
		list := t.Route(service.FromPod).Endpoints
		if len(list) == 0 || len(list) > 2 {
			continue
		}
		for _, name := range podsHere {
			if r.w.Pod(name).Addr(t.Addr) == list[0].Addr.Addr() {
				return t.probe(), name
			}
		}
	}
	return probe{}, ""
}

// localhost is a packet of the node to a loopback address.
func (r *round) localhost() (probe, string) {
	p := probe{dst: netip.MustParseAddr(one(r.g, "127.0.0.1", "127.0.0.1", "127.1.2.3", "::1"))}
	if r.g.chance(10) {
		p.proto, p.dport = one(r.g, netfilter.TCP, netfilter.UDP), one(r.g, foreignPorts...)
		return p, judged
	}
	for range 200 {
		if t := one(r.g, r.targets...); t.Kind == service.NodePort && t.Addr.Is4() == p.dst.Is4() {
			loopback := p.dst
			p = t.probe()
			p.dst = loopback
			return p, judged
		}
	}
	return probe{}, ""
}

// invalid is a TCP packet that begins no connection and belongs to none.
func (r *round) invalid() (probe, string) {
	const fin, syn, rst, psh, ack = netfilter.FIN, netfilter.SYN, netfilter.RST, netfilter.PSH, netfilter.ACK
	p, from := r.toService()
	if r.g.chance(40) {
		p, from = r.direct()
	}
	p.proto, p.flags = netfilter.TCP, one(r.g, ack, ack, psh|ack, fin|ack, rst, rst|ack, syn|ack, syn|fin)
	if p.dport == 0 {
		p.dport = 80
	}
	return p, from
}

// refused is a packet to a Service without endpoints.
func (r *round) refused() (probe, string) {
	for range 200 {
		if t := one(r.g, r.targets...); t.Route(service.FromOutside).Verdict == service.Reject {
			return t.probe(), one(r.g, visitor, judged, outside, podsHere[0])
		}
	}
	return probe{}, ""
}

// spoofed is a packet from outside or from a pod with an address that is not the
// sender's: another pod's, the node's, a loopback or a Service's.
func (r *round) spoofed() (probe, string) {
	p, _ := r.toService()
	if r.g.chance(40) {
		p, _ = r.direct()
	}
	from := one(r.g, outside, outside, visitor)
	if from == outside && !r.w.leadsHere(from, p.dst) {
		return probe{}, ""
	}
	if p.dst.Is4() {
		p.src = netip.MustParseAddr(one(r.g, "10.244.1.12", "10.244.2.11", "192.0.2.11", "127.0.0.1", "127.3.4.5", "10.96.1.3", "192.0.2.200", "198.18.0.7"))
	} else {
		p.src = netip.MustParseAddr(one(r.g, "fd00:244:1::12", "fd00:244:2::11", "2001:db8::11", "::1", "fd00:96::103", "2001:db8::200"))
	}
	return p, from
}

// direct is a packet to somebody rather than to a Service.
func (r *round) direct() (probe, string) {
	six := r.g.chance(40)
	v := func(four, other string) netip.Addr {
		if six {
			return netip.MustParseAddr(other)
		}
		return netip.MustParseAddr(four)
	}
	p := probe{proto: one(r.g, netfilter.TCP, netfilter.UDP), dport: one(r.g, foreignPorts...)}
	p.dst = one(r.g, v("10.244.1.11", "fd00:244:1::11"), v("10.244.1.12", "fd00:244:1::12"), v("10.244.2.11", "fd00:244:2::11"),
		v("192.0.2.11", "2001:db8::11"), v("192.0.2.11", "2001:db8::11"), v("192.0.2.12", "2001:db8::12"), v("192.0.2.200", "2001:db8::200"), v("10.244.1.1", "fd00:244:1::1"), v("198.18.0.1", "2001:db8:ffff::1"))
	if r.g.chance(10) {
		if p.proto = netfilter.ICMP; six {
			p.proto = netfilter.ICMPv6
		}
		p.dport = 0
	}
	here := p.dst == v("10.244.1.11", "fd00:244:1::11") || p.dst == v("10.244.1.12", "fd00:244:1::12") || r.w.owns(p.dst)
	if here {
		return p, one(r.g, visitor, judged, outside, other, podsThere[0], podsHere[2], podsHere[3])
	}
	if p.dst == v("192.0.2.200", "2001:db8::200") || p.dst == v("192.0.2.12", "2001:db8::12") || p.dst == v("198.18.0.1", "2001:db8:ffff::1") {
		return p, one(r.g, visitor, judged, podsHere[0])
	}
	return p, one(r.g, visitor, judged, podsHere[0])
}

// owns tells whether an address is one of the judged node's interfaces.
func (w *world) owns(a netip.Addr) bool {
	for _, own := range append(append([]netip.Addr(nil), w.node.Addrs...), w.node.Bridge...) {
		if own == a {
			return true
		}
	}
	return false
}

// leadsHere tells whether what a host beyond the judged node's bridge sends to an
// address comes to the judged node: its own addresses, those of its pods, and from the
// client all Service networks.
func (w *world) leadsHere(from string, a netip.Addr) bool {
	networks := topology().Nodes[0].Pods
	if from == outside {
		networks = slices.Concat(networks, lab.ServiceNetworks, lab.VIPNetworks)
	}
	return w.owns(a) || slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
