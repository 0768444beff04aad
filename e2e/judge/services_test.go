package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/lab"
)

// generator draws everything that is random from one seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, 0x706f72746f6c616e))}
}

// chance is true in the given part of a hundred.
func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

// one picks an element.
func one[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

// some picks each element with a chance in percent.
func some[T any](g generator, percent int, list ...T) (out []T) {
	for _, x := range list {
		if g.chance(percent) {
			out = append(out, x)
		}
	}
	return out
}

// backing is somebody who may be an endpoint.
type backing struct {
	node  string
	addrs []netip.Addr // of both families
}

// backings lists the pods of both nodes, and the nodes for what uses their network.
func backings() (here, there, hosts []backing) {
	t := topology()
	for _, p := range t.Pods {
		b := backing{p.Node, p.Addrs}
		switch {
		case strings.HasPrefix(p.Name, "here"):
			here = append(here, b)
		case strings.HasPrefix(p.Name, "there"):
			there = append(there, b)
		}
	}
	for _, n := range t.Nodes {
		hosts = append(hosts, backing{n.Name, n.Addrs})
	}
	return here, there, hosts
}

// endpoints draws who is behind a Service.
func (g generator) endpoints() []discovery.Endpoint {
	here, there, hosts := backings()
	var list []backing
	switch g.IntN(10) {
	case 0:
		return nil
	case 1, 2:
		list = append(list, one(g, here...))
	case 3:
		list = append(list, one(g, there...))
	case 4:
		list = append(some(g, 60, here...), one(g, here...))
	case 5:
		list = append(some(g, 50, there...), one(g, there...))
	case 6:
		list = append(some(g, 30, here...), hosts[g.IntN(2)])
	default:
		list = append(some(g, 50, here...), some(g, 50, there...)...)
	}
	allStates := g.chance(30)
	onlyTerminating := g.chance(8)
	var out []discovery.Endpoint
	for _, b := range list {
		e := discovery.Endpoint{Addresses: []string{b.addrs[0].String(), b.addrs[1].String()}, NodeName: new(b.node)}
		switch state := g.IntN(4); {
		case onlyTerminating, allStates && state == 0:
			e.Conditions = discovery.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
		case allStates && state == 1:
			e.Conditions = discovery.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(g.chance(50))}
		case g.chance(80):
			e.Conditions.Ready = new(true)
		}
		if g.chance(4) {
			e.NodeName = nil
		}
		out = append(out, e)
	}
	return out
}

// sourceRanges are what a load balancer may be limited to.
var sourceRanges = []string{"192.0.2.200/32", "192.0.2.0/24", "192.0.2.200/31", "10.244.0.0/16", "10.244.1.0/24", "192.0.2.11/32", "0.0.0.0/0", "198.18.0.0/15",
	"2001:db8::200/128", "2001:db8::/64", "fd00:244::/32", "2001:db8::11/128"}

// service draws Service number i with its EndpointSlices. Numbers keep the
// addresses and NodePorts of Services apart.
func (g generator) service(i int) []any {
	name := fmt.Sprintf("svc-%03d", i)
	s := &v1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: one(g, "default", "shop", "kube-system")}}
	v4 := fmt.Sprintf("10.96.%d.%d", 1+i/200, 1+i%200)
	v6 := fmt.Sprintf("fd00:96::%x", 0x100+i)
	s.Spec.ClusterIPs = one(g, []string{v4}, []string{v4, v6}, []string{v4, v6}, []string{v6, v4}, []string{v6})
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	for _, a := range s.Spec.ClusterIPs {
		family := v1.IPv4Protocol
		if strings.Contains(a, ":") {
			family = v1.IPv6Protocol
		}
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, family)
	}
	s.Spec.Type = one(g, v1.ServiceTypeClusterIP, v1.ServiceTypeNodePort, v1.ServiceTypeNodePort, v1.ServiceTypeLoadBalancer)
	g.ports(s, i)
	g.external(s, i)
	g.policies(s, i)
	out := []any{s}
	endpoints := g.endpoints()
	for _, family := range s.Spec.IPFamilies {
		out = append(out, slicesOf(s, endpoints, family)...)
	}
	return out
}

func (g generator) ports(s *v1.Service, i int) {
	for n := range 1 + g.IntN(2) {
		p := v1.ServicePort{Name: fmt.Sprintf("p%d", n), Protocol: one(g, v1.ProtocolTCP, v1.ProtocolUDP), Port: one(g, int32(80), 53, 443)}
		for _, before := range s.Spec.Ports { // the port may be used by both protocols
			if before.Protocol == p.Protocol && before.Port == p.Port {
				p.Port = 9000 + int32(n)
			}
		}
		if s.Spec.Type != v1.ServiceTypeClusterIP && !g.chance(5) {
			p.NodePort = int32(30000 + 4*i + n)
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if len(s.Spec.Ports) == 1 && g.chance(50) {
		s.Spec.Ports[0].Name = ""
	}
}

// external draws the addresses that are not the cluster's.
func (g generator) external(s *v1.Service, i int) {
	if g.chance(35) {
		s.Spec.ExternalIPs = some(g, 70, fmt.Sprintf("203.0.113.%d", 1+i), fmt.Sprintf("2001:db8:203::%x", 1+i))
	}
	if s.Spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	for _, ip := range some(g, 85, fmt.Sprintf("198.51.100.%d", 1+i), fmt.Sprintf("2001:db8:198::%x", 1+i)) {
		in := v1.LoadBalancerIngress{IP: ip}
		if g.chance(40) {
			in.IPMode = new(one(g, v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy))
		}
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, in)
	}
	if g.chance(60) {
		s.Spec.LoadBalancerSourceRanges = some(g, 25, sourceRanges...)
	}
}

func (g generator) policies(s *v1.Service, i int) {
	if g.chance(25) {
		s.Spec.InternalTrafficPolicy = new(v1.ServiceInternalTrafficPolicyLocal)
	}
	if s.Spec.Type != v1.ServiceTypeClusterIP || len(s.Spec.ExternalIPs) > 0 {
		if g.chance(45) {
			s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
			if s.Spec.Type == v1.ServiceTypeLoadBalancer {
				s.Spec.HealthCheckNodePort = int32(29000 + i)
			}
		}
	}
	if g.chance(20) {
		// Long enough not to run out while a test looks.
		s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(int32(3600 + g.IntN(7200)))}}
	}
}

// slicesOf gives the EndpointSlice of one family.
func slicesOf(s *v1.Service, endpoints []discovery.Endpoint, family v1.IPFamily) []any {
	if len(endpoints) == 0 {
		return nil
	}
	slice := &discovery.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, AddressType: discovery.AddressType(family),
		ObjectMeta: metav1.ObjectMeta{Name: s.Name + "-" + strings.ToLower(string(family)), Namespace: s.Namespace, Labels: map[string]string{discovery.LabelServiceName: s.Name}}}
	for _, p := range s.Spec.Ports {
		target := int32(podPorts[0])
		if p.Protocol == v1.ProtocolUDP {
			target = int32(podPorts[1])
		}
		slice.Ports = append(slice.Ports, discovery.EndpointPort{Name: new(p.Name), Protocol: new(p.Protocol), Port: new(target)})
	}
	at := 0
	if family == v1.IPv6Protocol {
		at = 1
	}
	for _, e := range endpoints {
		e.Addresses = e.Addresses[at : at+1]
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return []any{slice}
}

// nodes are the Node objects of the lab.
func nodes() (out []any) {
	for _, n := range topology().Nodes {
		o := &v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{v1.LabelHostname: n.Name, v1.LabelTopologyZone: "zone-" + n.Name}}}
		for _, p := range n.Pods {
			o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, p.String())
		}
		o.Spec.PodCIDR = o.Spec.PodCIDRs[0]
		for _, a := range n.Addrs {
			o.Status.Addresses = append(o.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a.String()})
		}
		out = append(out, o)
	}
	return out
}

// documents writes objects as a file of manifests.
func documents(objects []any) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.Bytes(), nil
}

func clusterCIDR() string {
	var list []string
	for _, p := range lab.PodNetworks {
		list = append(list, p.String())
	}
	return strings.Join(list, ",")
}
