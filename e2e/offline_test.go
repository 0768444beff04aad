package e2e

import (
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
	"portolan/localhost"
	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/trace"
)

// TestOffline judges every flow of the scenarios without a kernel: what plan prints
// for a node is parsed and traced with a description of that node, from node to node
// until the packet has arrived. Verdict, endpoints with equal shares, and the source
// they see must be those of the table, and what package service decides.
func TestOffline(t *testing.T) {
	t.Parallel()
	program := offlineBinary(t)
	for _, mode := range paperModes {
		for _, s := range readScenarios(t) {
			t.Run(mode+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				o := newOffline(t, s, mode, func(o *offline, n *paperNode, args []string) ([]detect.Text, error) {
					return o.plan(t, n, program, args)
				})
				ran, ways := 0, 0
				for _, f := range s.flows {
					if !f.holdsIn(mode) {
						continue
					}
					ran++
					n, err := o.check(f)
					if err != nil {
						t.Errorf("%s\n\t%v", f.line, err)
					}
					ways += n
				}
				did.add("offline", count{scenarios: 1, flows: ran, tries: ways})
			})
		}
	}
}

// offlineBinary is the binary under test, built if nobody has.
func offlineBinary(t *testing.T) string {
	t.Helper()
	if binary != "" {
		return binary
	}
	file := filepath.Join(t.TempDir(), "portolan")
	if out, err := exec.Command("go", "build", "-o", file, "portolan/cmd/portolan").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return file
}

// offline is a scenario on paper.
type offline struct {
	scenario
	mode  string
	nodes map[string]*paperNode
	pods  map[netip.Addr]lab.PodSpec
}

// paperNode is a node as it is described, with its planned rules.
type paperNode struct {
	spec   lab.NodeSpec
	bridge []netip.Addr
	trace  *trace.Tracer
	model  *service.Snapshot
	// listening are the loopback addresses on which the proxy itself answers.
	listening []netip.Addr
}

// newOffline puts a scenario on paper, with the rules that are given for a node and
// the arguments of its proxy.
func newOffline(t *testing.T, s scenario, mode string, rules func(*offline, *paperNode, []string) ([]detect.Text, error)) *offline {
	t.Helper()
	dir := t.TempDir()
	if err := writeManifests(dir, map[string][]byte{"services.yaml": s.manifests, "nodes.yaml": s.nodeManifests()}); err != nil {
		t.Fatal(err)
	}
	o := &offline{scenario: s, mode: mode, nodes: map[string]*paperNode{}, pods: map[netip.Addr]lab.PodSpec{}}
	for _, p := range s.topology.Pods {
		for _, a := range p.Addrs {
			o.pods[a] = p
		}
	}
	for _, spec := range s.topology.Nodes {
		n := &paperNode{spec: spec}
		for _, p := range spec.Pods {
			n.bridge = append(n.bridge, p.Masked().Addr().Next())
		}
		args := append([]string{"--manifests", dir, "--hostname-override", spec.Name, "--cluster-cidr", clusterCIDR(), "--proxy-mode", mode}, s.args...)
		model, routed, err := paperModel(t.Context(), args, n.addresses())
		if err != nil {
			t.Fatal(err)
		}
		n.model = model
		if mode != "iptables" {
			n.listening = localhost.Addresses(model.Node.NodePorts)
		}
		texts, err := rules(o, n, args)
		if err != nil {
			t.Fatal(err)
		}
		host, err := detect.Host(detect.Options{}, append(texts, detect.Text{Name: spec.Name, Text: o.describe(n, routed)})...)
		if err != nil {
			t.Fatal(err)
		}
		n.trace = trace.New(host, trace.Options{Reply: true})
		o.nodes[spec.Name] = n
	}
	return o
}

// addresses are those of the node's interfaces.
func (n *paperNode) addresses() []netip.Addr {
	own := append(slices.Clone(n.spec.Addrs), n.bridge...)
	return append(own, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
}

// describe writes the node down as a person would.
func (o *offline) describe(n *paperNode, localhost bool) string {
	var b strings.Builder
	b.WriteString("interfaces:\n- {name: lo, addresses: [127.0.0.1/8, \"::1/128\"]}\n")
	list := func(addrs []netip.Addr, bits func(netip.Addr) int) string {
		var out []string
		for _, a := range addrs {
			out = append(out, fmt.Sprintf("%q", netip.PrefixFrom(a, bits(a))))
		}
		return strings.Join(out, ", ")
	}
	within := func(nets []netip.Prefix) func(netip.Addr) int {
		return func(a netip.Addr) int {
			for _, p := range nets {
				if p.Contains(a) {
					return p.Bits()
				}
			}
			panic("e2e: no network of " + a.String())
		}
	}
	fmt.Fprintf(&b, "- {name: eth0, addresses: [%s]}\n", list(n.spec.Addrs, within(lab.SwitchNetworks)))
	fmt.Fprintf(&b, "- {name: cni0, kind: bridge, addresses: [%s]}\n", list(n.bridge, within(n.spec.Pods)))
	b.WriteString("routes:\n")
	for _, gw := range lab.GatewayAddrs {
		fmt.Fprintf(&b, "- {to: default, via: %q, dev: eth0}\n", gw)
	}
	for _, peer := range o.topology.Nodes {
		for i, p := range peer.Pods {
			if peer.Name != n.spec.Name {
				fmt.Fprintf(&b, "- {to: %q, via: %q, dev: eth0}\n", p, peer.Addrs[i])
			}
		}
	}
	b.WriteString("sysctls: {net.ipv4.ip_forward: 1, net.ipv6.conf.all.forwarding: 1, net.bridge.bridge-nf-call-iptables: 1, net.bridge.bridge-nf-call-ip6tables: 1")
	if localhost {
		b.WriteString(", net.ipv4.conf.all.route_localnet: 1")
	}
	if o.mode == "ipvs" {
		b.WriteString(", net.ipv4.vs.conntrack: 1")
	}
	b.WriteString("}\n")
	return b.String()
}

// plan gives what plan prints for a node. Where that depends on the addresses of
// interfaces, plan runs in a lab that has them, or is told.
func (o *offline) plan(t *testing.T, n *paperNode, program string, args []string) (out []detect.Text, err error) {
	var l *lab.Lab
	switch {
	case strings.Contains(strings.Join(args, " "), "--nodeport-addresses"):
		if os.Geteuid() != 0 {
			t.Skip("NodePorts of some addresses: plan asks this machine for its own, and to give it those of the scenario needs root")
		}
		if l, err = lab.New(o.topology); err != nil {
			return nil, err
		}
		defer l.Close()
	case o.mode == "ipvs":
		for _, a := range n.addresses() {
			args = append(args, "--node-ip", a.String())
		}
	}
	for family, rules := range map[string]string{"ipv4": "iptables", "ipv6": "ip6tables"} {
		words := append([]string{"plan", "--ip-family", family}, args...)
		var text []byte
		if l == nil {
			text, err = exec.CommandContext(t.Context(), program, words...).Output()
		} else {
			text, err = l.Node(n.spec.Name).Command(t.Context(), lab.HostVariant, program, words...).CombinedOutput()
		}
		if err != nil {
			return nil, fmt.Errorf("plan for %s: %w\n%s", n.spec.Name, err, text)
		}
		out = append(out, written(rules, "plan of "+n.spec.Name, string(text)))
	}
	return out, nil
}

// written is a text with the program that its rules are for.
func written(program, name, text string) detect.Text {
	return detect.Text{Name: name, Text: "# " + program + "\n" + text}
}

// onPaper is the cluster with the rules that the kernel lists in each of its nodes.
func (c *cluster) onPaper(b portolan) *offline {
	c.t.Helper()
	return newOffline(c.t, c.scenario, b.mode, func(_ *offline, n *paperNode, _ []string) (out []detect.Text, err error) {
		node := c.Node(n.spec.Name)
		for family, program := range map[string]string{"ip": "iptables", "ip6": "ip6tables"} {
			var text string
			if b.mode == "nftables" {
				text, err = listTable(c.t.Context(), node, family)
			} else {
				text, err = save(c.t.Context(), node, b.variant, program+"-save")
			}
			if err != nil {
				return nil, err
			}
			out = append(out, written(program, "rules of "+n.spec.Name, text))
		}
		return out, nil
	})
}

// arrival is one thing that can become of a flow.
type arrival struct {
	verdict lab.Verdict
	pod     string
	seen    netip.Addr
	masked  bool // the source was rewritten on the way
	how     string
}

// check follows a flow and compares it with the table and with package service.
func (o *offline) check(f flow) (ways int, err error) {
	start, entry := o.start(f)
	shares := map[arrival]*big.Rat{}
	if err := o.follow(walk{packet: start, node: entry, share: big.NewRat(1, 1)}, shares); err != nil {
		return 0, err
	}
	got := map[string]*big.Rat{}
	for a, share := range shares {
		if a.verdict != f.verdict {
			return 0, fmt.Errorf("%v of all: %v, %s", share, a.verdict, a.how)
		}
		if a.verdict != lab.Answered {
			continue
		}
		if want := o.seen(f, a.pod, start.Src); a.seen != want {
			return 0, fmt.Errorf("%s sees %v, want %v", a.pod, a.seen, want)
		}
		if got[a.pod] == nil {
			got[a.pod] = new(big.Rat)
		}
		got[a.pod].Add(got[a.pod], share)
	}
	for _, pod := range f.pods {
		if want := f.share(pod); got[pod] == nil || got[pod].Cmp(want) != 0 {
			return 0, fmt.Errorf("%s gets %v of all, want %v", pod, got[pod], want)
		}
	}
	if len(got) != len(f.pods) {
		return 0, fmt.Errorf("answers of %v, want %v", got, f.pods)
	}
	return len(shares), o.decided(f, start, shares)
}

// walk is a packet on its way from node to node.
type walk struct {
	packet trace.Flow
	node   string
	share  *big.Rat
	hops   int
	masked bool
}

// follow walks a packet through a node and goes on where it arrives.
func (o *offline) follow(w walk, shares map[arrival]*big.Rat) error {
	if w.hops > 4 {
		return fmt.Errorf("the packet goes round: %v at %s", w.packet, w.node)
	}
	a := o.nodes[w.node].trace.Trace(w.packet)
	for _, way := range a.Outcomes {
		on := w
		on.share = new(big.Rat).Mul(w.share, way.Share)
		if on.share.Sign() == 0 {
			continue // for clients that are remembered
		}
		if !way.Certain {
			return fmt.Errorf("trace at %s is not certain: %s %v", w.node, way.Reason, way.Doubts)
		}
		if err := o.next(on, way, shares); err != nil {
			return err
		}
	}
	return nil
}

// next tells what becomes of one outcome at a node.
func (o *offline) next(w walk, way trace.Outcome, shares map[arrival]*big.Rat) error {
	end := func(a arrival) error {
		a.how = w.node + ": " + way.Reason
		if shares[a] == nil {
			shares[a] = new(big.Rat)
		}
		shares[a].Add(shares[a], w.share)
		return nil
	}
	switch way.Verdict {
	case trace.Dropped:
		return end(arrival{verdict: lab.TimedOut})
	case trace.Input:
		if t, ok := o.nodes[w.node].listens(way); ok {
			w.share.Quo(w.share, big.NewRat(int64(len(t.Endpoints)), 1))
			for _, e := range t.Endpoints {
				seen := o.nodes[w.node].source(e.Addr())
				if err := end(arrival{verdict: lab.Answered, pod: o.pods[e.Addr()].Name, seen: seen, masked: true}); err != nil {
					return err
				}
			}
			return nil
		}
		return end(arrival{verdict: lab.Refused}) // nobody else listens on a node
	case trace.Rejected:
		return end(arrival{verdict: lab.Refused})
	case trace.Forwarded, trace.Output:
	default:
		return fmt.Errorf("trace at %s: %v %s", w.node, way.Verdict, way.Reason)
	}
	w.masked = w.masked || way.Masquerade
	pod, is := o.pods[way.Dst]
	if is && pod.Node == w.node {
		if !slices.Contains(pod.Ports, way.DstPort) {
			return end(arrival{verdict: lab.Refused})
		}
		if err := comesBack(w.packet, way); err != nil {
			return err
		}
		return end(arrival{verdict: lab.Answered, pod: pod.Name, seen: way.Src, masked: w.masked})
	}
	for name, n := range o.nodes {
		if name != w.node && (is && pod.Node == name || slices.Contains(n.addresses(), way.Dst)) {
			if err := comesBack(w.packet, way); err != nil {
				return err
			}
			w.packet = trace.Flow{Src: way.Src, Dst: way.Dst, SrcPort: way.SrcPort, DstPort: way.DstPort, Proto: way.Proto, In: "eth0"}
			w.node, w.hops = name, w.hops+1
			return o.follow(w, shares)
		}
	}
	return end(arrival{verdict: lab.Unreachable}) // by the default route
}

// listens tells where the proxy of the node carries what is delivered here.
func (n *paperNode) listens(way trace.Outcome) (localhost.Target, bool) {
	for svc := range n.model.All() {
		for p, t := range localhost.Ports(n.model.Node, svc, n.listening) {
			if p.Addr == netip.AddrPortFrom(way.Dst, way.DstPort) && string(p.Protocol) == netfilter.ProtoName(way.Proto) {
				return t, true
			}
		}
	}
	return localhost.Target{}, false
}

// comesBack makes sure that the answer is translated back where it passes again.
func comesBack(packet trace.Flow, way trace.Outcome) error {
	r := way.Reply
	switch {
	case r == nil || !r.Passes && (way.DNAT || way.Masquerade):
		return fmt.Errorf("the answer to %v does not come back this way: %+v", packet, r)
	case !r.Passes:
		return nil
	case r.Verdict.Lost() || r.Verdict == trace.Unknown || r.Src != packet.Dst || r.Dst != packet.Src:
		return fmt.Errorf("the answer to %v: %v from %v to %v: %s", packet, r.Verdict, r.Src, r.Dst, r.Reason)
	}
	return nil
}
