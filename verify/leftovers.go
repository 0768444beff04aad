package verify

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// checkLeftovers finds Service rules of more than one mode.
func checkLeftovers(w *world) (out []Finding) {
	modes := map[string][]proxy{}
	for _, p := range w.proxies {
		modes[p.mode] = append(modes[p.mode], p)
	}
	var all []proxy
	for _, list := range modes {
		all = append(all, list...)
	}
	if len(modes) > 1 {
		out = append(out, w.leftoverModes(all))
	}
	if in := w.host.Interface(serviceDummy); in != nil && len(in.Addresses) > 0 && w.host.Have.Servers && len(w.host.Servers) == 0 {
		out = append(out, Finding{
			Code: Leftovers, Severity: Error, Object: "interface " + serviceDummy,
			Actual:   fmt.Sprintf("it has %d addresses and IPVS has no virtual servers: packets to these addresses end on this host", len(in.Addresses)),
			Expected: "without ipvs mode there is no such interface",
			Owner:    Owner{kubeProxy, "its ipvs mode makes it"},
			Fix:      "ip link delete " + serviceDummy,
			Link:     "https://github.com/kubernetes/kubernetes/issues/102314",
		})
	}
	return out
}

// leftoverModes tells of Service rules in several modes. The set that serves most
// counts as the one in use.
func (w *world) leftoverModes(all []proxy) Finding {
	slices.SortStableFunc(all, func(a, b proxy) int { return cmp.Or(a.before(b), strings.Compare(a.where, b.where)) })
	var others []string
	for _, p := range all[1:] {
		if p.mode != all[0].mode {
			others = append(others, p.where)
		}
	}
	return Finding{
		Code: Leftovers, Severity: Warning, Object: strings.Join(others, ", "),
		Actual:   fmt.Sprintf("there are Service rules of %s mode beside those of %s mode (%s)", modeOf(all, others[0]), all[0].mode, all[0].where),
		Expected: "the rules of one mode",
		Owner:    ownerAt(all, others[0]),
		Fix:      "remove what the proxy does not use: portolan cleanup --dry-run lists it; then restart the proxy",
		Link:     "https://github.com/kubernetes/kubernetes/issues/102314",
	}
}

func modeOf(all []proxy, where string) string {
	return all[slices.IndexFunc(all, func(p proxy) bool { return p.where == where })].mode
}

func ownerAt(all []proxy, where string) Owner {
	return all[slices.IndexFunc(all, func(p proxy) bool { return p.where == where })].owner
}
