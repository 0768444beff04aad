// Package kube turns Kubernetes API objects into the model of package service.
//
// Cluster collects Services, EndpointSlices and the own Node and converts only
// what changed. Objects that are not fit to be programmed are refused by
// Validate with the field that is wrong; what is left out on purpose (addresses
// of another family, endpoints without address) follows kube-proxy 1.37.
package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/service"
)

// Labels of the API that decide who answers for a Service.
const (
	labelProxyName = "service.kubernetes.io/service-proxy-name"
	labelHeadless  = "service.kubernetes.io/headless"
)

// Ignored tells why no rule is wanted for the Service, or "" when it is ours.
func Ignored(svc *v1.Service) string {
	_, otherProxy := svc.Labels[labelProxyName]
	switch {
	case otherProxy:
		return "another service proxy is named in label " + labelProxyName
	case svc.Spec.Type == v1.ServiceTypeExternalName:
		return "type ExternalName has no address"
	case svc.Spec.ClusterIP == v1.ClusterIPNone:
		return "it is headless"
	case svc.Spec.ClusterIP == "" && len(svc.Spec.ClusterIPs) == 0:
		return "it has no cluster IP yet"
	}
	return ""
}

// Convert returns the model of a Service with the endpoints of its slices, nil
// for a Service that is Ignored.
func Convert(svc *v1.Service, endpointSlices []*discovery.EndpointSlice) *service.Service {
	if Ignored(svc) != "" {
		return nil
	}
	out := &service.Service{
		Name:            service.Name{Namespace: svc.Namespace, Name: svc.Name},
		Created:         svc.CreationTimestamp.Time,
		ClusterIPs:      clusterIPs(svc),
		ExternalIPs:     addresses(svc.Spec.ExternalIPs),
		LoadBalancerIPs: loadBalancerIPs(svc),
		SourceRanges:    prefixes(svc.Spec.LoadBalancerSourceRanges),
		Triggers:        triggers(endpointSlices),
	}
	if p := svc.Spec.InternalTrafficPolicy; p != nil && *p == v1.ServiceInternalTrafficPolicyLocal {
		out.InternalPolicy = service.Local
	}
	if svc.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && acceptsLocal(svc) {
		out.ExternalPolicy = service.Local
		if svc.Spec.Type == v1.ServiceTypeLoadBalancer {
			out.HealthCheckNodePort = uint16(svc.Spec.HealthCheckNodePort)
		}
	}
	if svc.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		out.AffinityTimeout = affinityTimeout(svc)
	}
	weights := setOptions(out, svc)
	for _, p := range svc.Spec.Ports {
		port := service.Port{
			Name:     p.Name,
			Protocol: protocol(&p.Protocol),
			Port:     uint16(p.Port),
			NodePort: uint16(p.NodePort),
		}
		port.Endpoints = endpoints(port, endpointSlices, weights)
		out.Ports = append(out.Ports, port)
	}
	slices.SortFunc(out.Ports, func(a, b service.Port) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// acceptsLocal: kube-proxy 1.37 obeys externalTrafficPolicy on these types,
// and on any Service with external IPs.
func acceptsLocal(svc *v1.Service) bool {
	return svc.Spec.Type == v1.ServiceTypeLoadBalancer || svc.Spec.Type == v1.ServiceTypeNodePort ||
		len(svc.Spec.ExternalIPs) > 0
}

// affinityTimeout falls back to the API's default for an object that did not
// pass through an API server.
func affinityTimeout(svc *v1.Service) time.Duration {
	seconds := v1.DefaultClientIPServiceAffinitySeconds
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

func clusterIPs(svc *v1.Service) []netip.Addr {
	if len(svc.Spec.ClusterIPs) > 0 {
		return addresses(svc.Spec.ClusterIPs)
	}
	return addresses([]string{svc.Spec.ClusterIP})
}

func loadBalancerIPs(svc *v1.Service) []netip.Addr {
	var out []string
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" && (in.IPMode == nil || *in.IPMode == v1.LoadBalancerIPModeVIP) {
			out = append(out, in.IP)
		}
	}
	return addresses(out)
}

func protocol(p *v1.Protocol) service.Protocol {
	if p == nil {
		return service.TCP
	}
	switch *p {
	case v1.ProtocolUDP:
		return service.UDP
	case v1.ProtocolSCTP:
		return service.SCTP
	}
	return service.TCP // the API's default
}

// endpoints merges the endpoints of all slices that serve the port, matched by
// name and protocol, never by number.
func endpoints(port service.Port, endpointSlices []*discovery.EndpointSlice, w weights) []service.Endpoint {
	type keyed struct {
		text string
		ep   service.Endpoint
	}
	var all []keyed
	for _, slice := range endpointSlices {
		if slice.AddressType == discovery.AddressTypeFQDN {
			continue
		}
		number := slicePort(slice, port)
		if number == 0 {
			continue
		}
		for i := range slice.Endpoints {
			if ep, ok := endpoint(slice.AddressType, &slice.Endpoints[i], number); ok {
				ep.Weight = w.of(ep.Addr.Addr(), ep.Node, zoneOf(&slice.Endpoints[i]))
				all = append(all, keyed{ep.Addr.String(), ep})
			}
		}
	}
	// A running pod beats a terminating one on a reused address.
	slices.SortStableFunc(all, func(a, b keyed) int {
		return cmp.Or(cmp.Compare(a.text, b.text), compareBool(a.ep.Terminating, b.ep.Terminating))
	})
	out := make([]service.Endpoint, 0, len(all))
	for i, k := range all {
		if i == 0 || all[i-1].text != k.text {
			out = append(out, k.ep)
		}
	}
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// slicePort returns the number a slice gives to the port, 0 for none. A port
// without name or number ("all ports") is not supported, as in kube-proxy.
func slicePort(slice *discovery.EndpointSlice, port service.Port) uint16 {
	for _, p := range slice.Ports {
		if p.Name != nil && *p.Name == port.Name && p.Port != nil && protocol(p.Protocol) == port.Protocol {
			return uint16(*p.Port)
		}
	}
	return 0
}

func zoneOf(e *discovery.Endpoint) string {
	if e.Zone == nil {
		return ""
	}
	return *e.Zone
}

func endpoint(want discovery.AddressType, e *discovery.Endpoint, port uint16) (service.Endpoint, bool) {
	if len(e.Addresses) == 0 {
		return service.Endpoint{}, false
	}
	addr, err := parseAddr(e.Addresses[0])
	if err != nil || addr.Is4() != (want == discovery.AddressTypeIPv4) {
		return service.Endpoint{}, false
	}
	out := service.Endpoint{
		Addr:        netip.AddrPortFrom(addr, port),
		Ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		Serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		Terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	if e.NodeName != nil {
		out.Node = *e.NodeName
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			out.ZoneHints = append(out.ZoneHints, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			out.NodeHints = append(out.NodeHints, n.Name)
		}
	}
	return out, true
}
