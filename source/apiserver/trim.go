package apiserver

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/source/kube"
)

const labelProxyName = "service.kubernetes.io/service-proxy-name"

// trimMeta leaves of an object's metadata what is read of it, and the named labels.
func trimMeta(m *metav1.ObjectMeta, labels ...string) {
	kept := metav1.ObjectMeta{
		Namespace:         m.Namespace,
		Name:              m.Name,
		UID:               m.UID,
		ResourceVersion:   m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, l := range labels {
		if value, is := m.Labels[l]; is {
			if kept.Labels == nil {
				kept.Labels = map[string]string{}
			}
			kept.Labels[l] = value
		}
	}
	*m = kept
}

func trimService(s *v1.Service) {
	options := s.Annotations
	trimMeta(&s.ObjectMeta, labelProxyName)
	for key, value := range options {
		if strings.HasPrefix(key, kube.OptionPrefix) {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Annotations[key] = value
		}
	}
	s.TypeMeta = metav1.TypeMeta{}
	spec := s.Spec
	s.Spec = v1.ServiceSpec{
		Type:                     spec.Type,
		Ports:                    spec.Ports,
		ClusterIP:                spec.ClusterIP,
		ClusterIPs:               spec.ClusterIPs,
		ExternalIPs:              spec.ExternalIPs,
		SessionAffinity:          spec.SessionAffinity,
		SessionAffinityConfig:    spec.SessionAffinityConfig,
		LoadBalancerSourceRanges: spec.LoadBalancerSourceRanges,
		ExternalTrafficPolicy:    spec.ExternalTrafficPolicy,
		InternalTrafficPolicy:    spec.InternalTrafficPolicy,
		HealthCheckNodePort:      spec.HealthCheckNodePort,
	}
	s.Status.Conditions = nil
}

// names are the names of nodes and zones, each once: an endpoint is one of many on
// its node.
type names map[string]*string

// namesMax bounds names that nobody uses any more, in clusters whose nodes come
// and go.
const namesMax = 20_000

func (n names) shared(s *string) *string {
	if s == nil {
		return nil
	}
	if kept := n[*s]; kept != nil {
		return kept
	}
	if len(n) >= namesMax {
		clear(n)
	}
	n[*s] = s
	return s
}

var yes, no = true, false

// flag is one of two variables for all endpoints there are.
func flag(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return &yes
	}
	return &no
}

func trimSlice(s *discovery.EndpointSlice, nodes names) {
	trigger, is := s.Annotations[v1.EndpointsLastChangeTriggerTime]
	trimMeta(&s.ObjectMeta, discovery.LabelServiceName, v1.IsHeadlessService)
	if is {
		s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: trigger}
	}
	s.TypeMeta = metav1.TypeMeta{}
	kept := make([]discovery.Endpoint, len(s.Endpoints)) // a decoder leaves room for more
	for i, e := range s.Endpoints {
		kept[i] = discovery.Endpoint{
			Conditions: discovery.EndpointConditions{
				Ready:       flag(e.Conditions.Ready),
				Serving:     flag(e.Conditions.Serving),
				Terminating: flag(e.Conditions.Terminating),
			},
			NodeName: nodes.shared(e.NodeName),
			Zone:     nodes.shared(e.Zone),
			Hints:    e.Hints,
		}
		if len(e.Addresses) > 0 { // the others are never looked at
			kept[i].Addresses = e.Addresses[:1:1]
		}
	}
	s.Endpoints = kept
}

func trimNode(n *v1.Node) {
	trimMeta(&n.ObjectMeta, v1.LabelTopologyZone)
	n.TypeMeta = metav1.TypeMeta{}
	n.Spec = v1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Taints: n.Spec.Taints}
	n.Status = v1.NodeStatus{Addresses: n.Status.Addresses}
}

func trimServiceCIDR(o *networking.ServiceCIDR) {
	trimMeta(&o.ObjectMeta)
	o.TypeMeta = metav1.TypeMeta{}
	o.Status = networking.ServiceCIDRStatus{}
}
