package verify

import (
	"strings"

	"portolan/service"
)

// fixOf says what to do about a difference in traffic.
func fixOf(w *world, d difference, f *Finding) string {
	restart := "have " + w.proxyName() + " write its rules anew: restart it"
	switch d.code {
	case FrontendMissing, FrontendRefused, RefusalMissing, RefusalDiffers, SourceRangeOpen, EndpointStale, EndpointMissing, SharesUneven, MasqueradeMissing, HairpinBroken, AffinityMissing, AffinityUnwanted:
		return restart + "; if the finding stays, look at its log"
	case MasqueradeUnwanted:
		if f.Owner.Name != "" && !f.Owner.isProxy() {
			return "except traffic to the pod network in the rule of " + f.Owner.Name
		}
		return restart + "; or give verify the --cluster-cidr, or the other flags, that the proxy has"
	case ForeignDrop:
		return "remove " + f.Object + " (" + f.Owner.Name + "), or accept traffic of Services before it: mark 0x4000, and the pod network as source and destination"
	case AnswerLost:
		return "look at the route of the answer, and at the rules that it meets"
	case BridgeFilterOff:
		return bridgeFix(f.Object)
	case ForwardingOff, LocalnetOff, ReversePath, RouteMissing:
		return hostFix(f.Object)
	case ChainLoop:
		return "take one of the jumps away"
	case CannotTell:
		return "give what is missing (see the assumptions), or look at the rule by hand"
	}
	return ""
}

// hostFix says how to make the host let packets pass.
func hostFix(object string) string {
	switch {
	case strings.HasPrefix(object, "rp_filter"):
		return "set it to 2 (loose), or mend the route back"
	case strings.HasPrefix(object, "route"):
		return "add the route, or mend what should add it: the pod network's agent"
	}
	return "sysctl -w " + object + "=1, and a file in /etc/sysctl.d that keeps it"
}

// proxyName is the proxy that the rules are of, where they say.
func (w *world) proxyName() string {
	if w.proxy.Name != "" {
		return w.proxy.Name
	}
	return "the Service proxy"
}

// restartIsNoFix says what a restart of kube-proxy cannot mend, "" where it may. Its
// iptables mode has no rule that refuses external addresses to the node itself.
func restartIsNoFix(w *world, c *call, d difference) string {
	external := c.target.fe.Kind == service.LoadBalancerIP || c.target.fe.Kind == service.ExternalIP
	if d.code != RefusalMissing || c.client.name != clientNode || !external || w.proxy.Name != kubeProxy {
		return ""
	}
	return "none where only the node itself is let on: kube-proxy's iptables mode never refuses it that, and Portolan does (docs/differences.md); where others suffer too, have kube-proxy write its rules anew: restart it"
}

// knownAs is a problem of the same pattern that many have had, "" without one.
func knownAs(f *Finding, d difference) string {
	const issues = "https://github.com/kubernetes/kubernetes/issues/"
	switch {
	case f.Code == HairpinBroken:
		return issues + "45790"
	case f.Code == ForeignDrop && f.Owner.Name == "docker" && d.step != nil && d.step.Rule == 0:
		return issues + "39823" // Docker's policy of FORWARD
	}
	return ""
}
