// Package demo is what `portolan lab run` shows: which little cluster, which
// Services, who calls what, and the table of who answered.
package demo

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan/lab"
)

// Plan is a cluster, Services for it, and calls to show that they answer.
type Plan struct {
	Topology  lab.Topology
	Manifests []byte // of the Services; empty when they are in files of the user
	Calls     []Call
	Notes     []string // what the plan leaves out, and why

	services []served // behind Manifests
}

// Call is one row of the table.
type Call struct {
	What  string
	From  string // "client", the name of a node, or of a pod
	Proto string // "tcp" or "udp"
	To    netip.AddrPort
	Want  string // verdict; empty when nothing is known about it
}

// port is where the pods of the demo answer.
const port = 8080

// The addresses of the demo's Services.
const (
	webIP, webIP6 = "10.96.0.10", "fd00:96::10"
	soloIP        = "10.96.0.11"
	emptyIP       = "10.96.0.12"
	localIP       = "10.96.0.13"
	webVIP        = "198.51.100.10"
	webNodePort   = 30080
	localNodePort = 30081
)

// Default is the demo: a Service with three endpoints by ClusterIP, NodePort and
// load balancer IP, in both families; an endpoint that calls itself; a Service
// without endpoints; and one with externalTrafficPolicy Local.
func Default(nodes, podsPerNode int) (Plan, error) {
	if nodes < 1 || nodes > 9 || podsPerNode < 1 || podsPerNode > 20 {
		return Plan{}, fmt.Errorf("lab: %d nodes with %d pods each: it has room for 1 to 9 nodes with 1 to 20 pods", nodes, podsPerNode)
	}
	p := Plan{Topology: lab.Numbered(nodes, podsPerNode, port)}
	pods := p.Topology.Pods
	web := pods[:min(3, len(pods))]
	p.services = []served{
		{"web", ask{kind: "LoadBalancer", ips: []string{webIP, webIP6}, nodePort: webNodePort, vip: webVIP}.object("web"), ready(web)},
		{"solo", ask{kind: "ClusterIP", ips: []string{soloIP}}.object("solo"), ready(pods[:1])},
		{"empty", ask{kind: "ClusterIP", ips: []string{emptyIP}}.object("empty"), nil},
		{"local", ask{kind: "NodePort", ips: []string{localIP}, nodePort: localNodePort, spec: "externalTrafficPolicy: Local"}.object("local"), ready(pods[:podsPerNode])},
	}
	p.Manifests = manifestsOf(p.services)
	p.Calls = defaultCalls(p.Topology, len(web))
	return p, nil
}

// defaultCalls shows each kind of address, from each kind of client.
func defaultCalls(t lab.Topology, endpoints int) []Call {
	last, first := t.Pods[len(t.Pods)-1].Name, t.Pods[0].Name
	nodes := t.Nodes
	answered, refused, timeout := lab.Answered.String(), lab.Refused.String(), lab.TimedOut.String()
	web := func(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), 80) }
	calls := []Call{
		{"ClusterIP, " + plural(endpoints, "endpoint"), last, "tcp", web(webIP), answered},
		{"  the same in IPv6", last, "tcp", web(webIP6), answered},
		{"  the same in UDP", last, "udp", web(webIP), answered},
		{"  from a node", nodes[0].Name, "tcp", web(webIP), answered},
		{"NodePort from outside", "client", "tcp", netip.AddrPortFrom(nodes[0].Addrs[0], webNodePort), answered},
		{"  the same in IPv6", "client", "tcp", netip.AddrPortFrom(nodes[0].Addrs[1], webNodePort), answered},
		{"Load balancer IP", "client", "tcp", web(webVIP), answered},
		{"Hairpin: a pod calls itself", first, "tcp", web(soloIP), answered},
		{"No endpoints", last, "tcp", web(emptyIP), refused},
		{"  from outside", "client", "tcp", web(emptyIP), refused},
		{"External policy Local", "client", "tcp", netip.AddrPortFrom(nodes[0].Addrs[0], localNodePort), answered},
	}
	if len(nodes) > 1 {
		calls = append(calls, Call{"  at a node without endpoint", "client", "tcp", netip.AddrPortFrom(nodes[1].Addrs[0], localNodePort), timeout})
	}
	return calls
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// ask is what a Service of port 80, TCP and UDP, asks for.
type ask struct {
	kind     string   // type in the API
	ips      []string // cluster IPs, that of IPv4 first
	nodePort int      // 0 for none
	spec     string   // another field, "" for none
	vip      string   // of a load balancer, "" for none
}

// object writes the Service.
func (a ask) object(name string) string {
	b := &strings.Builder{}
	families := []string{"IPv4", "IPv6"}[:len(a.ips)]
	fmt.Fprintf(b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n  type: %s\n", name, a.kind)
	fmt.Fprintf(b, "  clusterIP: %q\n  clusterIPs: [%s]\n  ipFamilies: [%s]\n", a.ips[0], quoted(a.ips), strings.Join(families, ", "))
	if a.spec != "" {
		fmt.Fprintf(b, "  %s\n", a.spec)
	}
	fmt.Fprintf(b, "  ports:\n")
	for _, proto := range []string{"TCP", "UDP"} {
		fmt.Fprintf(b, "  - {name: %s, protocol: %s, port: 80, targetPort: %d", strings.ToLower(proto), proto, port)
		if a.nodePort != 0 {
			fmt.Fprintf(b, ", nodePort: %d", a.nodePort)
		}
		fmt.Fprintf(b, "}\n")
	}
	if a.vip != "" {
		fmt.Fprintf(b, "status: {loadBalancer: {ingress: [{ip: %s}]}}\n", a.vip)
	}
	return b.String()
}

func ready(pods []lab.PodSpec) (out []Endpoint) {
	for _, p := range pods {
		out = append(out, Endpoint{PodSpec: p})
	}
	return out
}

// endpointSlices writes an EndpointSlice for each family.
func endpointSlices(b *strings.Builder, service string, endpoints []Endpoint) {
	for i, family := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n")
		fmt.Fprintf(b, "metadata: {name: %s-%s, namespace: default, labels: {kubernetes.io/service-name: %s}}\n", service, strings.ToLower(family), service)
		fmt.Fprintf(b, "addressType: %s\nports:\n- {name: tcp, protocol: TCP, port: %d}\n- {name: udp, protocol: UDP, port: %d}\nendpoints:\n", family, port, port)
		for _, e := range endpoints {
			fmt.Fprintf(b, "- {addresses: [%q], nodeName: %s, conditions: {ready: %t, serving: %t, terminating: %t}}\n",
				e.Addrs[i], e.Node, !e.Terminating && !e.Unreachable, !e.Unreachable, e.Terminating)
		}
	}
}

// quoted joins for a YAML list in one line.
func quoted(list []string) string {
	var out []string
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}
