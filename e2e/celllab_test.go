package e2e

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"

	"portolan/lab"
)

// podState is one endpoint of a state.
type podState struct {
	pod                         string
	ready, serving, terminating bool
	zone                        string // hinted for
}

// stateEndpoints are the endpoints of each state; see cells/README.md.
var stateEndpoints = map[string][]podState{
	"local":       {{pod: "a", ready: true, serving: true}, {pod: "b", ready: true, serving: true}},
	"remote":      {{pod: "x", ready: true, serving: true}, {pod: "y", ready: true, serving: true}},
	"both":        {{pod: "a", ready: true, serving: true}, {pod: "x", ready: true, serving: true}},
	"none":        nil,
	"terminating": {{pod: "a", serving: true, terminating: true}, {pod: "b", terminating: true}, {pod: "x", serving: true, terminating: true}},
	"leaving":     {{pod: "a", serving: true, terminating: true}, {pod: "x", ready: true, serving: true}},
	"notready":    {{pod: "a"}, {pod: "x", serving: true}},
	"hinted":      {{pod: "a", ready: true, serving: true, zone: "far"}, {pod: "b"}, {pod: "x", ready: true, serving: true, zone: "near"}},
}

// cellPods are where cells/README.md puts them.
var cellPods = []lab.PodSpec{
	lab.NumberedPod("a", 1, 1, podPort), lab.NumberedPod("b", 1, 2, podPort), lab.NumberedPod("visitor", 1, 40, 9999),
	lab.NumberedPod("x", 2, 1, podPort), lab.NumberedPod("y", 2, 2, podPort),
}

const podPort = 8080

// manifest writes one Service of both families with a TCP and a UDP port, and its
// slices.
type manifest struct {
	name, kind     string // as in a cell; "nodeport" stands for its three
	policy         string
	internal       string // internalTrafficPolicy, where policy means the external one
	created        string // RFC 3339; empty for no time
	affinity       bool
	annotations    string        // "key: value, ..."
	cluster        [2]netip.Addr // IPv4, IPv6
	external       [2]netip.Addr // externalip, lb and its kin
	port, nodePort int
	ranges         []string
	endpoints      []podState
}

// cellServices are the Services of all cells, in an order that never changes:
// everything about one follows from its place.
func cellServices() []manifest {
	var list []manifest
	for _, kind := range []string{"clusterip", "nodeport", "lb", "lb-inside", "lb-outside", "lb-proxy", "externalip"} {
		for _, policy := range cellPolicies {
			for _, endpoints := range cellStates {
				n := len(list) + 1
				m := manifest{
					name: strings.ToLower(kind + "-" + policy + "-" + endpoints), kind: kind, policy: policy,
					cluster: pair("10.96.1.%d", "fd00:96::1%02x", n), external: pair("198.51.100.%d", "2001:db8:198::%x", n),
					port: 80, nodePort: 30000 + 2*n, endpoints: stateEndpoints[endpoints],
				}
				switch kind {
				case "lb-inside":
					m.ranges = []string{"192.0.2.200/32", "192.0.2.11/32", "10.244.1.0/26", "2001:db8::200/128", "2001:db8::11/128", "fd00:244:1::/64"}
				case "lb-outside":
					m.ranges = []string{"192.0.2.201/32", "192.0.2.12/32", "10.244.2.0/24", "2001:db8::201/128", "2001:db8::12/128", "fd00:244:2::/64"}
				}
				list = append(list, m)
			}
		}
	}
	return list
}

// stickyService has session affinity; mutations that lose it show there.
var stickyService = manifest{
	name: "sticky", kind: "clusterip", policy: "Cluster", affinity: true, port: 80,
	cluster: pair("10.96.2.%d", "fd00:96::2%02x", 1), endpoints: append(stateEndpoints["local"], stateEndpoints["remote"]...),
}

func pair(v4, v6 string, n int) [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr(fmt.Sprintf(v4, n)), netip.MustParseAddr(fmt.Sprintf(v6, n))}
}

// serviceOf names the Service behind a cell.
func serviceOf(c cell) string {
	kind := c.kind
	if strings.HasPrefix(kind, "nodeport") {
		kind = "nodeport"
	}
	return strings.ToLower(kind + "-" + c.policy + "-" + c.endpoints)
}

// destination is the address that the client of a cell calls.
func (m manifest) destination(c cell) netip.AddrPort {
	family, nodePort := 0, uint16(m.nodePort)
	if c.family == "ipv6" {
		family = 1
	}
	if c.proto == "udp" {
		nodePort++
	}
	node := lab.NumberedNode(1)
	switch c.kind {
	case "clusterip":
		return netip.AddrPortFrom(m.cluster[family], uint16(m.port))
	case "nodeport":
		return netip.AddrPortFrom(node.Addrs[family], nodePort)
	case "nodeport-bridge":
		return netip.AddrPortFrom(node.Pods[family].Addr().Next(), nodePort)
	case "nodeport-localhost":
		return netip.AddrPortFrom([]netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}[family], nodePort)
	}
	return netip.AddrPortFrom(m.external[family], uint16(m.port))
}

// yaml is the manifest of the Service and its EndpointSlices.
func (m manifest) yaml() []byte {
	var b bytes.Buffer
	put := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	put("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default", m.name)
	if m.annotations != "" {
		put(", annotations: {%s}", m.annotations)
	}
	if m.created != "" {
		put(", creationTimestamp: %q", m.created)
	}
	put("}\nspec:\n")
	put("  clusterIP: %s\n  clusterIPs: [%s, %q]\n", m.cluster[0], m.cluster[0], m.cluster[1])
	put("  ipFamilies: [IPv4, IPv6]\n  ipFamilyPolicy: RequireDualStack\n")
	policy := "externalTrafficPolicy"
	nodePorts := m.kind != "clusterip" && m.kind != "externalip"
	switch m.kind {
	case "clusterip":
		policy = "internalTrafficPolicy"
	case "externalip":
		put("  externalIPs: [%s, %q]\n", m.external[0], m.external[1])
	case "nodeport":
		put("  type: NodePort\n")
	default:
		put("  type: LoadBalancer\n")
	}
	put("  %s: %s\n", policy, m.policy)
	if m.internal != "" {
		put("  internalTrafficPolicy: %s\n", m.internal)
	}
	if m.affinity {
		put("  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}\n")
	}
	if m.ranges != nil {
		put("  loadBalancerSourceRanges: [\"%s\"]\n", strings.Join(m.ranges, `", "`))
	}
	put("  ports:\n")
	for i, proto := range []string{"TCP", "UDP"} {
		put("  - {name: p%d, protocol: %s, port: %d, targetPort: %d", i, proto, m.port, podPort)
		if nodePorts {
			put(", nodePort: %d", m.nodePort+i)
		}
		put("}\n")
	}
	if strings.HasPrefix(m.kind, "lb") {
		mode := "VIP"
		if m.kind == "lb-proxy" {
			mode = "Proxy"
		}
		put("status: {loadBalancer: {ingress: [{ip: %s, ipMode: %s}, {ip: %q, ipMode: %s}]}}\n", m.external[0], mode, m.external[1], mode)
	}
	m.slices(put)
	return b.Bytes()
}

func (m manifest) slices(put func(string, ...any)) {
	for family, kind := range []string{"IPv4", "IPv6"} {
		put("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n")
		put("metadata: {name: %s-%d, namespace: default, labels: {kubernetes.io/service-name: %s}}\naddressType: %s\n", m.name, family, m.name, kind)
		put("ports:\n- {name: p0, protocol: TCP, port: %d}\n- {name: p1, protocol: UDP, port: %d}\nendpoints:\n", podPort, podPort)
		for _, e := range m.endpoints {
			for _, pod := range cellPods {
				if pod.Name != e.pod {
					continue
				}
				put("- {addresses: [%q], nodeName: %s, conditions: {ready: %t, serving: %t, terminating: %t}", pod.Addrs[family], pod.Node, e.ready, e.serving, e.terminating)
				if e.zone != "" {
					put(", hints: {forZones: [{name: %s}]}", e.zone)
				}
				put("}\n")
			}
		}
	}
}

// cellScenario is the cluster of the cells.
func cellScenario() scenario {
	s := scenario{
		name:     "cells",
		topology: lab.Topology{Client: lab.ClientAddrs, Routes: lab.RoutesVia("node1"), Pods: cellPods},
		zones:    map[string]string{"node1": "near", "node2": "far"},
	}
	for n := range 2 {
		s.topology.Nodes = append(s.topology.Nodes, lab.NumberedNode(n+1))
	}
	for _, m := range append(cellServices(), stickyService) {
		s.manifests = append(s.manifests, m.yaml()...)
	}
	return s
}
