package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/e2e/controlplane"
	"portolan/e2e/program"
	"portolan/lab"
)

// swapWorld has a node with two pods and a Service for each swap; the client reaches
// the addresses of a Service by its node.
type swapWorld struct {
	*world
	programs string
}

// as is the same world for a test inside a test.
func (w *swapWorld) as(t *testing.T) *swapWorld {
	world := *w.world
	world.t = t
	return &swapWorld{&world, w.programs}
}

func newSwapWorld(t *testing.T, nodes int) *swapWorld {
	topology := lab.Numbered(nodes, 2, 8080)
	topology.Routes = nil
	for i := range nodes {
		node := fmt.Sprintf("node%d", i+1)
		for _, to := range []string{fmt.Sprintf("10.96.%d.0/24", i+1), fmt.Sprintf("fd00:96::%d00/120", i+1), fmt.Sprintf("198.51.100.%d/28", 16*i)} {
			topology.Routes = append(topology.Routes, lab.RouteSpec{To: netip.MustParsePrefix(to), Node: node})
		}
	}
	w := &swapWorld{world: newWorldOf(t, topology)}
	var err error
	if w.programs, err = controlplane.Build(t.Context(), os.Stderr, "kube-proxy"); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		w.addService(i)
	}
	return w
}

func (w *swapWorld) addService(i int) {
	name, node := fmt.Sprintf("web%d", i+1), w.Node(fmt.Sprintf("node%d", i+1))
	object := w.newNode(node.Name)
	object.Status.Addresses[0].Address = node.Addrs[0].String()
	w.call("POST", nodesPath, object, nil)
	dual := v1.IPFamilyPolicyRequireDualStack
	s := newService(name, fmt.Sprintf("10.96.%d.10", i+1))
	s.Spec.Type = v1.ServiceTypeLoadBalancer
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &dual, []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, fmt.Sprintf("fd00:96::%d10", i+1)}
	s.Spec.Ports = []v1.ServicePort{
		{Name: "tcp", Port: 80, NodePort: int32(30000 + i)},
		{Name: "udp", Port: 80, NodePort: int32(30000 + i), Protocol: v1.ProtocolUDP},
	}
	w.call("POST", servicesPath, s, s)
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: fmt.Sprintf("198.51.100.%d", 16*i+1)}}
	w.call("PUT", servicesPath+"/"+name+"/status", s, nil)
	for _, slice := range w.slices(i, 0) {
		w.call("POST", slicesPath, slice, nil)
	}
}

// slices of Service i name one of its two pods.
func (w *swapWorld) slices(i, pod int) (out []*discovery.EndpointSlice) {
	address := w.Pod(fmt.Sprintf("pod-%d-%d", i+1, pod+1)).Addrs
	for family, kind := range []discovery.AddressType{discovery.AddressTypeIPv4, discovery.AddressTypeIPv6} {
		s := &discovery.EndpointSlice{AddressType: kind}
		service := fmt.Sprintf("web%d", i+1)
		s.Name = fmt.Sprintf("%s-%s", service, strings.ToLower(string(kind)))
		s.Labels = map[string]string{discovery.LabelServiceName: service}
		for _, p := range []struct {
			name  string
			proto v1.Protocol
			port  int32
		}{{"tcp", v1.ProtocolTCP, 8080}, {"udp", v1.ProtocolUDP, 8080}} {
			s.Ports = append(s.Ports, discovery.EndpointPort{Name: &p.name, Protocol: &p.proto, Port: &p.port})
		}
		node := fmt.Sprintf("node%d", i+1)
		s.Endpoints = []discovery.Endpoint{{Addresses: []string{address[family].String()}, NodeName: &node}}
		out = append(out, s)
	}
	return out
}

// moveTo makes a pod the only endpoint of Service i.
func (w *swapWorld) moveTo(i, pod int) {
	for _, s := range w.slices(i, pod) {
		if err := w.server.Call(w.t.Context(), "PUT", slicesPath+"/"+s.Name, s, nil); err != nil {
			w.t.Fatal(err)
		}
	}
}

// launch starts a product on node i as the step of that number, beside which the
// step before may still run.
func (w *swapWorld) launch(i, step int, what product) *proxy {
	node := w.Node(fmt.Sprintf("node%d", i+1))
	path, token := binary, proxyToken
	if what.peer {
		path, token = filepath.Join(w.programs, "kube-proxy"), peerToken
	}
	file, err := w.server.Kubeconfig(token)
	if err != nil {
		w.t.Fatal(err)
	}
	metrics := fmt.Sprintf("127.0.0.1:%d", 10249+100*step)
	args := []string{"--kubeconfig", file, "--hostname-override", node.Name, "--proxy-mode", what.mode, "-v", "2",
		"--cluster-cidr", "10.244.0.0/16,fd00:244::/32", "--nodeport-addresses", "0.0.0.0/0,::/0",
		"--metrics-bind-address", metrics, "--healthz-bind-address", fmt.Sprintf("0.0.0.0:%d", 10256+100*step),
		// not to be set in a network namespace
		"--conntrack-max-per-core", "0", "--conntrack-min", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0"}
	if !what.peer {
		args = append([]string{"proxy"}, args...)
	}
	p := &proxy{cmd: node.Command(context.WithoutCancel(w.t.Context()), what.variant, path, args...), log: &program.Log{}, w: w.world, metrics: "http://" + metrics + "/metrics", node: node}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.stop()
		if w.t.Failed() {
			w.t.Logf("%v on %s, step %d, said:\n%s", what, node.Name, step+1, p.log.Tail(40))
		}
	})
	return p
}

var fullSync = regexp.MustCompile(`kubeproxy_sync_full_proxy_rules_duration_seconds_count\{ip_family="IPv[46]"\} [1-9]`)

// written waits for the first full sync of both families, which both products count
// under one name.
func (p *proxy) written() {
	client := http.Client{Transport: &http.Transport{DialContext: p.node.DialContext, DisableKeepAlives: true}}
	p.w.await("the first sync", func() bool {
		answer, err := client.Get(p.metrics)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		var text strings.Builder
		if err := answer.Write(&text); err != nil {
			return false
		}
		return len(fullSync.FindAllString(text.String(), -1)) == 2
	})
}

// removeOwn removes, for a node that kube-proxy has taken over, what kube-proxy does
// not know to be Portolan's.
func (w *swapWorld) removeOwn(i int, before product) {
	if before.peer || before.mode != "nftables" {
		return
	}
	node := w.Node(fmt.Sprintf("node%d", i+1))
	if out, err := node.Command(w.t.Context(), before.variant, binary, "cleanup", "--own").CombinedOutput(); err != nil {
		w.t.Errorf("portolan cleanup --own: %v: %s", err, out)
	}
}

// endpoint is what names an endpoint: swaps on other nodes move theirs.
var endpoint = regexp.MustCompile(`KUBE-SEP-[A-Z0-9]{16}|10\.244\.\d+\.1[12]|fd00:244:\d::1[12]`)

// rulesOf lists the rules of node i: of iptables in both variants, without counts and
// order, and which tables of nftables there are. KUBE-FIREWALL is kubelet's too: it
// stays.
func (w *swapWorld) rulesOf(i int) rules {
	node, out := w.Node(fmt.Sprintf("node%d", i+1)), rules{}
	run := func(program string, args ...string) string {
		text, err := node.Command(w.t.Context(), lab.HostVariant, program, args...).CombinedOutput()
		if err != nil {
			w.t.Errorf("%s %v on %s: %v: %s", program, args, node.Name, err, text)
		}
		return string(text)
	}
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save", "iptables-nft-save", "ip6tables-nft-save"} {
		table := ""
		for line := range strings.Lines(run(program)) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "*"):
				table = line
			case strings.Contains(line, "KUBE-FIREWALL"):
			case strings.HasPrefix(line, "-A"):
				out[program+" "+table+" "+endpoint.ReplaceAllString(line, "endpoint")] = true
			case strings.HasPrefix(line, ":") && strings.Contains(line, " - "):
				name, _, _ := strings.Cut(line, " ")
				out[program+" "+table+" "+endpoint.ReplaceAllString(name, "endpoint")] = true
			}
		}
	}
	for line := range strings.Lines(run("nft", "list", "tables")) {
		if strings.Contains(line, "kube-proxy") || strings.Contains(line, "portolan") {
			out[strings.TrimSpace(line)] = true
		}
	}
	return out
}
