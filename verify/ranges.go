package verify

import (
	"net/netip"
	"slices"
	"strings"
)

// checkRanges: a service CIDR overlaps a pod network, or cluster IPs lie in one.
func checkRanges(w *world) (out []Finding) {
	var services []netip.Prefix
	if w.in.Services != nil {
		services = w.in.Services.Node.ServiceCIDRs
	}
	vips := w.clusterIPs()
	for _, p := range w.podRanges() {
		var inside []string
		for _, a := range vips {
			if p.net.Contains(a) {
				inside = append(inside, a.String())
			}
		}
		object := ""
		if i := slices.IndexFunc(services, p.net.Overlaps); i >= 0 {
			object = services[i].String() + " and " + p.net.String()
		} else if len(inside) > 0 {
			object = "cluster IPs and " + p.net.String()
		}
		if object == "" {
			continue
		}
		actual := "pod network " + p.net.String() + " (" + p.how + ") overlaps the network of Services"
		if len(inside) > 0 {
			actual += ": cluster IPs " + some(inside) + " lie in it"
		}
		return append(out, Finding{
			Code: RangeOverlap, Severity: Error, Object: object, Actual: actual, Owner: Owner{admin, "the networks are given when a cluster is made"},
			Expected: "pods and Services have networks of their own: a pod may get the address of a Service",
			Fix:      "give the service CIDR (serviceSubnet of kubeadm, --service-cluster-ip-range) a network that no pod or node has; for an existing cluster, add a ServiceCIDR and move Services to it",
		})
	}
	return out
}

// podRange is a network that pods have, and how that is known.
type podRange struct {
	net netip.Prefix
	how string
}

// podRanges are the networks of pods: the detector's, those of Nodes, and those of
// bridges that pods are on.
func (w *world) podRanges() (out []podRange) {
	add := func(net netip.Prefix, how string) {
		if !slices.ContainsFunc(out, func(p podRange) bool { return p.net == net }) {
			out = append(out, podRange{net, how})
		}
	}
	for _, in := range w.host.Interfaces {
		if !podBridge(in.Name) {
			continue
		}
		for _, a := range in.Addresses {
			if net := a.Prefix.Masked(); !net.Addr().IsLinkLocalUnicast() {
				add(net, "of interface "+in.Name)
			}
		}
	}
	if w.in.Services != nil {
		for _, p := range w.in.Services.Node.Detector.CIDRs {
			add(p, "the cluster CIDR of the proxy")
		}
	}
	for _, n := range w.in.Nodes {
		for _, p := range n.Pods {
			add(p, "of Node "+n.Name)
		}
	}
	return out
}

// podBridge tells whether pods are on a bridge of that name.
func podBridge(name string) bool {
	return slices.ContainsFunc([]string{"cni", "cbr", "kube-bridge", "weave"}, func(p string) bool { return strings.HasPrefix(name, p) })
}
