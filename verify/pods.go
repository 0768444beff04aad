package verify

import (
	"net/netip"

	"portolan/netfilter"
)

// checkPods: endpoints on this node are outside of what the proxy takes for pods.
func checkPods(w *world) (out []Finding) {
	if w.in.Services == nil {
		return nil
	}
	for _, f := range w.families {
		cidr, ok := w.in.Services.Node.Detector.CIDR(f)
		if !ok {
			continue
		}
		var outside []string
		for _, a := range w.localEndpoints(f) {
			if !cidr.Contains(a) && w.isPodHere(a) && w.onPodNetwork(a) {
				outside = append(outside, a.String())
			}
		}
		if len(outside) == 0 {
			continue
		}
		out = append(out, Finding{
			Code: PodsUnknown, Severity: Warning, Object: "cluster CIDR " + cidr.String(), Owner: Owner{admin, "the proxy's configuration says it"},
			Actual:   "pods on this node have other addresses: " + some(outside),
			Expected: "the cluster CIDR has all pods: those outside are taken for strangers, are masqueraded, and with external policy Local are refused",
			Fix:      "set clusterCIDR of the proxy to the pod network, or detectLocalMode to NodeCIDR",
			Link:     "https://github.com/kubernetes/kubernetes/issues/36835",
		})
	}
	return out
}

// onPodNetwork tells whether an address is reached by an interface of pods, not by
// one of the node's own networks.
func (w *world) onPodNetwork(a netip.Addr) bool {
	r := w.fib.Lookup(netfilter.Question{Dst: a})
	bridge, _ := w.host.IsBridge(r.Dev)
	return bridge || r.To.IsSingleIP()
}
