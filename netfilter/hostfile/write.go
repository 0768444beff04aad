package hostfile

import (
	"fmt"
	"net/netip"

	"sigs.k8s.io/yaml"

	"portolan/netfilter"
)

// Format writes what Parse reads of a host: interfaces, routes of one hop,
// neighbours and sysctls. What it cannot write it names, so that nobody takes
// its absence for a fact: routes of several hops, and routing rules other than
// those that every host has.
func Format(h *netfilter.Host) (text string, left []string, err error) {
	type object = map[string]any
	out := map[string][]object{}
	for _, in := range h.Interfaces {
		var addrs []string
		for _, a := range in.Addresses {
			addrs = append(addrs, a.Prefix.String())
		}
		out["interfaces"] = append(out["interfaces"], some(object{"name": in.Name, "addresses": addrs, "kind": in.Kind, "master": in.Master, "mac": in.MAC}))
	}
	for _, r := range h.Routes {
		if len(r.Hops) > 0 {
			left = append(left, fmt.Sprintf("route %s of several hops", r.To))
			continue
		}
		o := object{"to": r.To.String(), "via": addrText(r.Via), "dev": r.Dev, "src": addrText(r.Src), "metric": r.Metric, "table": r.Table}
		if r.Type != netfilter.RouteUnicast {
			o["type"] = r.Type.String()
		}
		out["routes"] = append(out["routes"], some(o))
	}
	if n := len(h.RoutingRules) - 2*len(netfilter.DefaultRules()); n > 0 {
		left = append(left, fmt.Sprintf("%d routing rules", n))
	}
	for _, n := range h.Neighbours {
		if n.MAC != "" {
			out["neighbours"] = append(out["neighbours"], object{"address": n.Addr.String(), "mac": n.MAC, "dev": n.Dev})
		}
	}
	all := object{"sysctls": h.Sysctls}
	for name, list := range out {
		all[name] = list
	}
	b, err := yaml.Marshal(all)
	if err != nil {
		return "", nil, fmt.Errorf("hostfile: %w", err)
	}
	return string(b), left, nil
}

// some leaves out what is empty.
func some(o map[string]any) map[string]any {
	for k, v := range o {
		switch v := v.(type) {
		case string:
			if v == "" {
				delete(o, k)
			}
		case uint32:
			if v == 0 {
				delete(o, k)
			}
		case int:
			if v == 0 {
				delete(o, k)
			}
		case []string:
			if len(v) == 0 {
				delete(o, k)
			}
		}
	}
	return o
}

func addrText(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
