package demo

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"portolan/lab"
	"portolan/service"
)

// ForServices plans a cluster for Services that somebody else wrote: a pod for each
// endpoint whose address lies in a pod network of the lab, nodes by the names that
// the endpoints give them, and a call to each address of each Service.
func ForServices(list []*service.Service, nodes int) (Plan, error) {
	p := Plan{Topology: lab.Topology{Client: lab.ClientAddrs}}
	names, err := nodeNames(list)
	if err != nil {
		return Plan{}, err
	}
	for number := range names {
		nodes = max(nodes, number)
	}
	if nodes < 1 || nodes > 9 {
		return Plan{}, fmt.Errorf("lab: %d nodes: it has room for 1 to 9", nodes)
	}
	for i := 1; i <= nodes; i++ {
		n := lab.NumberedNode(i)
		if names[i] != "" {
			n.Name = names[i]
		}
		p.Topology.Nodes = append(p.Topology.Nodes, n)
	}
	p.Topology.Routes = lab.RoutesVia(p.Topology.Nodes[0].Name)
	slices.SortFunc(list, func(a, b *service.Service) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	p.addPods(list)
	visitor := lab.NumberedPod("visitor", 1, 89)
	visitor.Node = p.Topology.Nodes[0].Name
	p.Topology.Pods = append(p.Topology.Pods, visitor)
	for _, s := range list {
		p.addCalls(s)
	}
	return p, nil
}

// nodeNames gives the number of a node in the lab the name that endpoints in its
// pod networks say.
func nodeNames(list []*service.Service) (map[int]string, error) {
	names := map[int]string{}
	for _, s := range list {
		for _, port := range s.Ports {
			for _, e := range port.Endpoints {
				number := nodeNumber(e.Addr.Addr())
				if number == 0 {
					continue
				}
				if before := names[number]; before != "" && e.Node != "" && before != e.Node {
					return nil, fmt.Errorf("lab: Service %s: endpoint %v is on node %s, but others of its pod network are on %s", s.Name, e.Addr, e.Node, before)
				}
				if e.Node != "" || names[number] == "" {
					names[number] = e.Node
				}
			}
		}
	}
	return names, nil
}

// nodeNumber tells in the pod network of which numbered node an address lies; 0 if
// in none.
func nodeNumber(addr netip.Addr) int {
	for i := 1; i <= 9; i++ {
		for _, p := range lab.NumberedNode(i).Pods {
			if p.Contains(addr) {
				return i
			}
		}
	}
	return 0
}

// addPods makes a pod for each address that is an endpoint, with all the ports on
// which it is one.
func (p *Plan) addPods(list []*service.Service) {
	ports := map[netip.Addr]map[uint16]bool{}
	owner := map[netip.Addr]string{}
	for _, s := range list {
		for _, port := range s.Ports {
			for _, e := range port.Endpoints {
				addr := e.Addr.Addr()
				if nodeNumber(addr) == 0 {
					p.Notes = append(p.Notes, fmt.Sprintf("no pod for endpoint %v of Service %s: outside the lab's pod networks 10.244.N.0/24, fd00:244:N::/64", e.Addr, s.Name))
					continue
				}
				if ports[addr] == nil {
					ports[addr] = map[uint16]bool{}
					owner[addr] = s.Name.Name
				}
				ports[addr][e.Addr.Port()] = true
			}
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare) {
		text := addr.String()
		p.Topology.Pods = append(p.Topology.Pods, lab.PodSpec{
			Name:  owner[addr] + "@" + text,
			Node:  p.Topology.Nodes[nodeNumber(addr)-1].Name,
			Addrs: []netip.Addr{addr},
			Ports: slices.Sorted(maps.Keys(ports[addr])),
		})
	}
}

// addCalls calls a Service by each of its addresses.
func (p *Plan) addCalls(s *service.Service) {
	for _, port := range s.Ports {
		proto := string(port.Protocol)
		if proto != "tcp" && proto != "udp" {
			p.Notes = append(p.Notes, fmt.Sprintf("Service %s is not called over %s", s.Name, proto))
			continue
		}
		call := func(what, from string, to netip.Addr, number uint16) {
			p.Calls = append(p.Calls, Call{What: s.Name.String() + " " + what, From: from, Proto: proto, To: netip.AddrPortFrom(to, number)})
		}
		for _, ip := range s.ClusterIPs {
			call("ClusterIP", "visitor", ip, port.Port)
			call("ClusterIP", "client", ip, port.Port)
		}
		for _, ip := range s.ExternalIPs {
			call("external IP", "client", ip, port.Port)
		}
		for _, ip := range s.LoadBalancerIPs {
			call("load balancer IP", "client", ip, port.Port)
		}
		if port.NodePort == 0 {
			continue
		}
		for _, n := range p.Topology.Nodes {
			for _, a := range n.Addrs {
				if hasFamily(s.ClusterIPs, a) {
					call("NodePort", "client", a, port.NodePort)
				}
			}
		}
	}
}

func hasFamily(addrs []netip.Addr, like netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return a.Is4() == like.Is4() })
}
