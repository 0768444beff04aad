package iptables

import (
	"fmt"
	"net/netip"
	"time"

	"portolan/service"
)

// shapeEndpoint is a ready endpoint with that last byte of its address.
func shapeEndpoint(f service.Family, last byte, node string) service.Endpoint {
	a := netip.AddrFrom4([4]byte{10, 244, 1, last})
	if f == service.IPv6 {
		a = netip.AddrFrom16([16]byte{0xfd, 0, 1, 15: last})
	}
	return service.Endpoint{Addr: netip.AddrPortFrom(a, 8080), Ready: true, Serving: true, Node: node}
}

// everyShape are nodes and Services that together use every form of rule.
func everyShape(f service.Family) (service.Node, []*service.Service) {
	ip := func(v4, v6 string) netip.Addr {
		if f == service.IPv4 {
			return addr(v4)
		}
		return addr(v6)
	}
	eps := func(n byte, node string) (out []service.Endpoint) {
		for i := range n {
			out = append(out, shapeEndpoint(f, i+1, node))
		}
		return out
	}
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	svc := func(name string, i byte, ports ...service.Port) *service.Service {
		s := clusterService("default", name, ip(fmt.Sprintf("10.96.0.%d", i), fmt.Sprintf("fd00:96::%d", i)).String(), ports...)
		s.Created = created
		return s
	}
	cidr := netip.MustParsePrefix("10.244.0.0/16")
	ranges := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("198.51.100.7/28")}
	if f == service.IPv6 {
		cidr = netip.MustParsePrefix("fd00:1::/48")
		ranges = []netip.Prefix{netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParsePrefix("2001:db8::10/128"), netip.MustParsePrefix("2001:db8:2::7/60")}
	}
	node := service.Node{Name: "n1", IPs: []netip.Addr{ip("192.0.2.10", "2001:db8::10")},
		Detector: service.PodDetector{CIDRs: []netip.Prefix{cidr}}, NodePorts: service.NodePortAddresses{Localhost: true}}
	tcp := service.Port{Name: "http", Protocol: service.TCP, Port: 80, NodePort: 30080, Endpoints: eps(7, "n1")}
	external := func(s *service.Service, i byte) *service.Service {
		s.ExternalIPs = []netip.Addr{ip("192.0.2.5"+string('0'+rune(i)), "2001:db8::5"+string('0'+rune(i)))}
		s.LoadBalancerIPs = []netip.Addr{ip("198.51.100.5"+string('0'+rune(i)), "2001:db8:9::5"+string('0'+rune(i)))}
		return s
	}
	port := func(p service.Port, nodePort uint16, endpoints []service.Endpoint) service.Port {
		p.NodePort, p.Endpoints = nodePort, endpoints
		return p
	}
	udp := service.Port{Protocol: service.UDP, Port: 53, Endpoints: eps(2, "n2")}
	all := []*service.Service{
		svc("plain", 1, udp),
		external(svc("cluster", 2, tcp), 2),
		external(svc("local", 3, port(tcp, 30081, append(eps(2, "n1"), shapeEndpoint(f, 9, "n2")))), 3),
		external(svc("elsewhere", 4, port(tcp, 30082, eps(3, "n2"))), 4),
		external(svc("none", 5, port(tcp, 30083, nil)), 5),
		external(svc("sticky", 6, port(tcp, 30084, eps(3, "n1"))), 6),
		external(svc("ranged", 7, port(tcp, 30085, eps(2, "n1"))), 7),
		svc("inside", 8, port(tcp, 0, eps(2, "n2"))),
		svc("weighted", 10, port(tcp, 30086, eps(4, "n2"))),
		svc("turns", 11, port(tcp, 30087, eps(3, "n1"))),
		external(svc("refusing", 12, port(tcp, 30088, eps(2, "n2"))), 8),
		svc("crowded", 13, port(tcp, 30152, eps(40, "n2"))),
		svc("sctp", 9, service.Port{Name: "s", Protocol: service.SCTP, Port: 99, Endpoints: eps(3, "n2")}),
	}
	setPolicies(all, ranges)
	return node, all
}

// setPolicies makes the Services of everyShape do what their names say.
func setPolicies(all []*service.Service, ranges []netip.Prefix) {
	all[2].ExternalPolicy, all[2].HealthCheckNodePort = service.Local, 32000
	all[3].ExternalPolicy, all[3].InternalPolicy = service.Local, service.Local
	all[5].AffinityTimeout = 3 * time.Hour
	all[6].SourceRanges = ranges
	all[7].InternalPolicy = service.Local
	weighted, turns, refusing := all[8], all[9], all[10]
	weighted.Ports[0].Endpoints[0].Weight, weighted.Ports[0].Endpoints[2].Weight = 5, 2
	turns.Algorithm, turns.AffinityTimeout, turns.Ports[0].Endpoints[1].Warmth = service.RoundRobin, time.Minute, 5
	refusing.RejectNoLocal, refusing.InternalPolicy, refusing.ExternalPolicy = true, service.Local, service.Local
}

// nodesOf are variations of a node that change rules.
func nodesOf(node service.Node) map[string]service.Node {
	vary := func(f func(*service.Node)) service.Node {
		n := node
		f(&n)
		return n
	}
	return map[string]service.Node{
		"cidr":   node,
		"bridge": vary(func(n *service.Node) { n.Detector = service.PodDetector{Bridge: "cni0"} }),
		"prefix": vary(func(n *service.Node) { n.Detector = service.PodDetector{InterfacePrefix: "veth"} }),
		"no detector, large": vary(func(n *service.Node) {
			n.Detector, n.LargeCluster, n.NodePorts.Localhost = service.PodDetector{}, true, false
		}),
		"masqueradeAll": vary(func(n *service.Node) { n.MasqueradeAll = true }),
		"addresses": vary(func(n *service.Node) {
			n.NodePorts = service.NodePortAddresses{Localhost: true,
				Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/64")},
				Local:    []netip.Addr{addr("127.0.0.1"), addr("192.0.2.10"), addr("2001:db8::10"), addr("::1")}}
		}),
	}
}
