package kube

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Service is what a Cluster keeps of a Service.
type Service struct {
	// model is there once: what with returned last, which Snapshots share and nobody
	// may change any more. Before the first with it has no endpoints.
	model   *service.Service
	told    bool // with returned it
	ignored bool // as Ignored says; only the name is known then
	weights weights
	uid     types.UID
}

// UID is that of the API object.
func (s *Service) UID() types.UID { return s.uid }

// NewService takes of svc what is read of it.
func NewService(svc *v1.Service) *Service {
	name := service.Name{Namespace: svc.Namespace, Name: svc.Name}
	if Ignored(svc) != "" {
		return &Service{model: &service.Service{Name: name}, ignored: true, uid: svc.UID}
	}
	out := &service.Service{
		Name:            name,
		Created:         svc.CreationTimestamp.Time,
		ClusterIPs:      clusterIPs(svc),
		ExternalIPs:     addresses(svc.Spec.ExternalIPs),
		LoadBalancerIPs: loadBalancerIPs(svc),
		SourceRanges:    prefixes(svc.Spec.LoadBalancerSourceRanges),
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
	w := setOptions(out, svc)
	for _, p := range svc.Spec.Ports {
		out.Ports = append(out.Ports, service.Port{
			Name:     p.Name,
			Protocol: protocol(&p.Protocol),
			Port:     uint16(p.Port),
			NodePort: uint16(p.NodePort),
		})
	}
	slices.SortFunc(out.Ports, func(a, b service.Port) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol))
	})
	return &Service{model: out, weights: w, uid: svc.UID}
}

// with returns the model with these endpoints.
func (s *Service) with(kept []*Slice) *service.Service {
	if s.told {
		other := *s.model
		other.Ports = slices.Clone(other.Ports)
		s.model = &other
	}
	s.told = true
	for i, p := range s.model.Ports {
		s.model.Ports[i].Endpoints = endpoints(p, kept, s.weights)
	}
	s.model.Triggers = triggers(kept)
	return s.model
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
