package verify

// vsConntrack has connections of IPVS tracked.
const vsConntrack = "net.ipv4.vs.conntrack"

// checkIPVS: without connection tracking for IPVS, rules do not masquerade its
// connections.
func checkIPVS(w *world) (out []Finding) {
	if on, given := w.on(vsConntrack); len(w.host.Servers) == 0 || !given || on {
		return nil
	}
	return []Finding{ipvsConntrackOff()}
}

func ipvsConntrackOff() Finding {
	return Finding{
		Code: IPVSConntrackOff, Severity: Error, Object: vsConntrack, Owner: kernelOwner,
		Actual:   "it is 0: connections of IPVS are not tracked, and what should be masqueraded is not",
		Expected: "1", Fix: "sysctl -w " + vsConntrack + "=1; kube-proxy sets it when it starts",
	}
}
