package verify

import (
	"net/netip"
	"slices"
	"strings"
)

// checkGateway: with routes to pods by other nodes (host-gw), the nodes are on one
// link. Where all of them have the MAC of the gateway, a fabric answers for them,
// which does not know the pods.
func checkGateway(w *world) []Finding {
	macs := map[netip.Addr]string{}
	for _, n := range w.host.Neighbours {
		macs[n.Addr] = n.MAC
	}
	gateway := netip.Addr{}
	for _, r := range w.host.Routes {
		if r.To.Bits() == 0 && r.Via.Is4() {
			gateway = r.Via
		}
	}
	var routes []string
	for _, r := range w.host.Routes {
		if r.To.Bits() == 0 || !r.Via.Is4() || r.Via == gateway || tunnel(w.host, r.Dev) || macs[gateway] == "" || macs[r.Via] != macs[gateway] {
			continue
		}
		routes = append(routes, r.To.String()+" by instance "+r.Via.String())
	}
	if len(routes) == 0 {
		return nil
	}
	slices.Sort(routes)
	return []Finding{{
		Code: GatewayMAC, Severity: Warning, Object: "neighbours of " + macs[gateway], Owner: Owner{"flannel", "routes by other nodes are those of host-gw"},
		Actual:   "other nodes have the MAC of the gateway " + gateway.String() + ": they are not on one link, and the network between them gets packets to pods that it does not know",
		Expected: "nodes on one link, or a network that has routes to pods",
		Fix:      "add routes to the network of the cloud: " + strings.Join(routes, ", ") + ", and one for this node; or use vxlan",
	}}
}
