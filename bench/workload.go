package main

import (
	"fmt"
	"net/netip"
	"strconv"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"portolan/bench/figures"
)

const (
	namespace = "load"
	openPort  = 8080 // endpoints answer here
	shutPort  = 8081 // and refuse here
	maxSlice  = 100  // endpoints in an EndpointSlice, as Kubernetes makes them
)

// Networks of the workload. Every endpoint address answers, whatever their number.
var (
	clusterIPs = netip.MustParseAddr("10.96.4.0")
	balancers  = netip.MustParseAddr("10.100.0.0")
	endpoints  = netip.MustParseAddr("10.128.1.0")
	// endpointNetwork holds all endpoints; clusterCIDR them and the pods of the lab.
	endpointNetwork = netip.MustParsePrefix("10.128.0.0/12")
	clusterCIDR     = netip.MustParsePrefix("10.128.0.0/9")
	serviceNetwork  = netip.MustParsePrefix("10.96.0.0/16")
)

// A kind is what a Service is beside its ClusterIP.
type kind int

const (
	plain kind = iota
	nodePort
	balancerLocal // LoadBalancer with external policy Local
	affinity      // ClientIP
	sourceRanges  // LoadBalancer with source ranges
	udp
)

// kindOf deals out the kinds of the mix: of 20 Services 4 are NodePort, 2
// LoadBalancer with policy Local, and 1 each has affinity, source ranges and UDP.
func kindOf(i int) kind {
	switch i % 20 {
	case 0, 5, 10, 15:
		return nodePort
	case 2, 12:
		return balancerLocal
	case 7:
		return affinity
	case 9:
		return sourceRanges
	case 17:
		return udp
	}
	return plain
}

// item is one Service with its EndpointSlices.
type item struct {
	service v1.Service
	slices  []discovery.EndpointSlice
}

// workload returns its Services: all alike, with as many endpoints each,
// or the mix. It is the same every time.
func workload(w figures.Workload) []item {
	items := make([]item, w.Services)
	next := endpoints
	for i := range items {
		k, count := plain, w.Endpoints
		if w.Mix() {
			k, count = kindOf(i), figures.MixEndpoints(i)
		}
		it := &items[i]
		it.service = newService(i, k)
		for first := 0; first < count; first += maxSlice {
			s := newSlice(it.service, first/maxSlice)
			for j := first; j < min(first+maxSlice, count); j++ {
				s.Endpoints = append(s.Endpoints, newEndpoint(it.service.Name, next, j))
				next = next.Next()
			}
			it.slices = append(it.slices, s)
		}
	}
	return items
}

func newService(i int, k kind) v1.Service {
	s := v1.Service{}
	s.APIVersion, s.Kind = "v1", "Service"
	s.Namespace, s.Name = namespace, fmt.Sprintf("service-%05d", i)
	s.Spec.Type = v1.ServiceTypeClusterIP
	s.Spec.ClusterIP = add(clusterIPs, i).String()
	s.Spec.Ports = []v1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(openPort), Protocol: v1.ProtocolTCP}}
	switch k {
	case nodePort:
		s.Spec.Type = v1.ServiceTypeNodePort
	case balancerLocal:
		s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
		balance(&s, i)
	case sourceRanges:
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "203.0.113.0/24"}
		balance(&s, i)
	case affinity:
		s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
	case udp:
		s.Spec.Ports[0].Protocol = v1.ProtocolUDP
	}
	return s
}

// balance makes a Service a LoadBalancer one. It has no node ports beside those
// that its policy needs: the range of ports would not last.
func balance(s *v1.Service, i int) {
	none := false
	s.Spec.Type = v1.ServiceTypeLoadBalancer
	s.Spec.AllocateLoadBalancerNodePorts = &none
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: add(balancers, i).String()}}
}

func newSlice(s v1.Service, number int) discovery.EndpointSlice {
	out := discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4}
	out.APIVersion, out.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	out.Namespace, out.Name = namespace, fmt.Sprintf("%s-%d", s.Name, number)
	out.Labels = map[string]string{discovery.LabelServiceName: s.Name, discovery.LabelManagedBy: "bench.invalid"}
	out.Ports = []discovery.EndpointPort{{Name: ptr("http"), Port: ptr(int32(openPort)), Protocol: &s.Spec.Ports[0].Protocol}}
	return out
}

// newEndpoint is number i of a Service; every fourth is on the node that is
// measured.
func newEndpoint(service string, addr netip.Addr, i int) discovery.Endpoint {
	node := "other-" + strconv.Itoa(i)
	if i%4 == 0 {
		node = nodeName
	}
	return discovery.Endpoint{
		Addresses:  []string{addr.String()},
		Conditions: discovery.EndpointConditions{Ready: ptr(true), Serving: ptr(true), Terminating: ptr(false)},
		NodeName:   &node,
		TargetRef:  &v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: fmt.Sprintf("%s-%d", service, i)},
	}
}

// changed picks the Service whose endpoints change: a plain one with as many
// endpoints as there are up to 10, the first of these behind the middle.
func changed(items []item) int {
	best, most := 0, 0
	for n := range items {
		i := (len(items)/2 + n) % len(items)
		s := items[i].service.Spec
		if !answers(items[i]) || s.Type != v1.ServiceTypeClusterIP || s.SessionAffinity == v1.ServiceAffinityClientIP {
			continue
		}
		if count := len(items[i].slices[0].Endpoints); count > most && count <= 10 {
			best, most = i, count
		}
	}
	return best
}

// answers tells whether a TCP connection to the ClusterIP is answered.
func answers(it item) bool {
	return len(it.slices) > 0 && it.service.Spec.Ports[0].Protocol == v1.ProtocolTCP
}

// frontend is where the Service is asked.
func frontend(it item) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(it.service.Spec.ClusterIP), 80)
}

// sample returns the frontends of up to n Services that answer, spread evenly from
// the first to the last.
func sample(items []item, n int) []netip.AddrPort {
	var all, out []netip.AddrPort
	for _, it := range items {
		if answers(it) {
			all = append(all, frontend(it))
		}
	}
	n = min(n, len(all))
	for i := range n {
		out = append(out, all[i*(len(all)-1)/max(1, n-1)])
	}
	return out
}

func add(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	n += int(b[0])<<24 | int(b[1])<<16 | int(b[2])<<8 | int(b[3])
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func ptr[T any](v T) *T { return &v }
