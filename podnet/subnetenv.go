package podnet

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// SubnetEnv is the content of subnet.env, from which the CNI plugin flannel
// learns this node's ranges. Topologies are those of the enabled families.
func SubnetEnv(topologies []Topology, masquerade bool) string {
	var b strings.Builder
	mtu := 0
	for _, t := range topologies {
		name := "FLANNEL_"
		if t.Family == IPv6 {
			name = "FLANNEL_IPV6_"
		}
		fmt.Fprintf(&b, "%sNETWORK=%s\n%sSUBNET=%s\n", name, t.Config.NetworkOf(t.Family), name, gateway(t.PodCIDR))
		if mtu == 0 || t.MTU() < mtu {
			mtu = t.MTU()
		}
	}
	fmt.Fprintf(&b, "FLANNEL_MTU=%d\nFLANNEL_IPMASQ=%t\n", mtu, masquerade)
	return b.String()
}

// gateway is the first address of a range that a host may have, with the
// length of the range.
func gateway(cidr netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(cidr.Addr().Next(), cidr.Bits())
}

// CNIConfig is a network configuration list for the stock plugins bridge,
// host-local and portmap, with what the plugin flannel would tell them: no
// other plugin and no subnet.env is needed. The file name should end in
// .conflist.
func CNIConfig(topologies []Topology, masquerade bool) ([]byte, error) {
	type subnet struct {
		Subnet string `json:"subnet"`
	}
	type route struct {
		Dst string `json:"dst"`
	}
	var ranges [][]subnet
	var routes []route
	mtu := 0
	for _, t := range topologies {
		ranges = append(ranges, []subnet{{t.PodCIDR.String()}})
		routes = append(routes, route{t.Config.NetworkOf(t.Family).String()})
		if mtu == 0 || t.MTU() < mtu {
			mtu = t.MTU()
		}
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": "cni0", "mtu": mtu, "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": !masquerade,
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}
	portmap := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}
	text, err := json.MarshalIndent(map[string]any{"cniVersion": "0.3.1", "name": "cbr0", "plugins": []any{bridge, portmap}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("podnet: CNI configuration: %w", err)
	}
	return append(text, '\n'), nil
}
