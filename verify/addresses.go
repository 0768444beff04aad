package verify

import (
	"net/netip"
	"slices"
)

// checkAddresses: a cluster IP is the address of an interface.
func checkAddresses(w *world) (out []Finding) {
	vips := w.clusterIPs()
	for _, in := range w.host.Interfaces {
		if in.Name == serviceDummy || in.Name == "kube-dummy-if" || in.Name == "nodelocaldns" {
			continue
		}
		for _, a := range in.Addresses {
			if addr := a.Prefix.Addr(); slices.Contains(vips, addr) {
				out = append(out, Finding{
					Code: AddressTaken, Severity: Error, Object: addr.String(), Owner: Owner{admin, "the networks are given when a cluster is made"},
					Actual:   "it is a cluster IP, and the address of interface " + in.Name + " of this host",
					Expected: "cluster IPs are nobody's address",
					Fix:      "give the service CIDR a network that no pod or node has",
				})
			}
		}
	}
	return out
}

// clusterIPs are the addresses that are known to be cluster IPs: of Services, or
// by what the rules say.
func (w *world) clusterIPs() []netip.Addr {
	seen := map[netip.Addr]bool{}
	if w.in.Services != nil {
		for s := range w.in.Services.All() {
			for _, a := range s.ClusterIPs {
				seen[a] = true
			}
		}
	}
	for _, s := range w.served {
		if s.vip {
			seen[s.addr] = true
		}
	}
	for _, set := range w.host.Sets {
		if set.Name != "KUBE-CLUSTER-IP" && set.Name != "KUBE-6-CLUSTER-IP" {
			continue
		}
		for _, m := range set.Members {
			if len(m.Parts) > 0 && m.Parts[0].Addrs.First.IsValid() {
				seen[m.Parts[0].Addrs.First] = true
			}
		}
	}
	for _, a := range w.dummyAddresses() {
		// Those of other kinds are not in anybody's pod network either.
		seen[a] = true
	}
	for _, s := range w.served {
		if s.where == "ipvs" && s.port < 30000 {
			seen[s.addr] = true
		}
	}
	out := make([]netip.Addr, 0, len(seen))
	for a := range seen {
		out = append(out, a)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (w *world) dummyAddresses() (out []netip.Addr) {
	if in := w.host.Interface(serviceDummy); in != nil {
		for _, a := range in.Addresses {
			out = append(out, a.Prefix.Addr())
		}
	}
	return out
}
