package apiserver

import (
	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
