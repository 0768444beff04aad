package trace

// ServiceChains returns the chains that a Service proxy in iptables mode may
// have for one Service port, with what they are for: for Options.Names. name is
// "namespace/name" or "namespace/name:port", protocol is in lower case, and
// endpoints are "ip:port", IPv6 in brackets.
func ServiceChains(name, protocol string, endpoints []string) map[string]string {
	out := map[string]string{}
	for _, prefix := range hashedPrefixes {
		if prefix != "KUBE-SEP-" {
			out[prefix+hash16(name+protocol)] = name + " " + purpose(prefix)
		}
	}
	for _, e := range endpoints {
		out["KUBE-SEP-"+hash16(name+protocol+e)] = name + " endpoint " + e
	}
	return out
}
