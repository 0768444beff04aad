package verify

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
		return restart
	case ForeignDrop:
		return "remove " + f.Object + " (" + f.Owner.Name + "), or accept traffic of Services before it: mark 0x4000, and the pod network as source and destination"
	case AnswerLost:
		return "set net.bridge.bridge-nf-call-iptables to 1 where pods share a bridge, else look at the route of the answer"
	case HostStops:
		return hostFix(f.Object)
	case CannotTell:
		return "give what is missing (see the assumptions), or look at the rule by hand"
	}
	return ""
}

// hostFix says how to make the host let packets pass.
func hostFix(object string) string {
	switch object {
	case "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding":
		return "sysctl -w " + object + "=1, and a file in /etc/sysctl.d that keeps it"
	case "route_localnet":
		return "sysctl -w net.ipv4.conf.all.route_localnet=1, or do without NodePorts on localhost"
	case "rp_filter":
		return "set rp_filter to 2 on the interface, or mend the route back"
	}
	return "add the route, or mend what should add it"
}

func (w *world) proxyName() string {
	if w.proxy.Name != "" {
		return w.proxy.Name
	}
	return "the Service proxy"
}
