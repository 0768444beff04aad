package verify

import (
	"fmt"
	"slices"
	"strings"

	"portolan/netfilter"
)

// checkProxy looks whether there are Service rules, and whether packets come to
// them.
func checkProxy(w *world) (out []Finding) {
	if w.in.Services == nil || w.in.Services.Len() == 0 {
		return nil
	}
	if len(w.proxies) == 0 {
		return []Finding{{
			Code: ProxyMissing, Severity: Error, Object: "Service rules",
			Actual:   "the host has no chain, table or virtual server of a Service proxy",
			Expected: fmt.Sprintf("rules for %d Services", w.in.Services.Len()),
			Fix:      "look why the proxy does not run on this node; if Services are done by eBPF (Cilium, Calico), this is how it should be",
		}}
	}
	w.unhooked = map[netfilter.Hook]bool{}
	for _, p := range w.proxies {
		if p.mode == "ipvs" {
			continue
		}
		for _, hook := range []netfilter.Hook{netfilter.Prerouting, netfilter.Output, netfilter.Postrouting} {
			if !w.hooked(p, hook) {
				w.unhooked[hook] = true
				out = append(out, w.jumpMissing(p, hook))
			}
		}
	}
	return out
}

// jumpMissing says that a hook does not lead to the Service rules.
func (w *world) jumpMissing(p proxy, hook netfilter.Hook) Finding {
	to := chainServices
	if hook == netfilter.Postrouting {
		to = chainPostrouting
	}
	if p.mode == "nftables" {
		to = p.where
	}
	return Finding{
		Code: JumpMissing, Severity: Error, Object: jumpObject(p, hook), Owner: p.owner,
		Actual:   fmt.Sprintf("no rule of nat leads from %s to %s", hook.ChainName(), to),
		Expected: "new connections pass the Service rules",
		Fix:      "have " + w.proxyName() + " write its rules anew: restart it; look who flushes the table (firewalld, iptables-restore)",
		Link:     "https://github.com/kubernetes/kubernetes/issues/81517",
	}
}

func jumpObject(p proxy, hook netfilter.Hook) string {
	if p.mode == "nftables" {
		return p.where + " " + hook.String()
	}
	return strings.Replace(p.where, chainServices, hook.ChainName(), 1)
}

// hooked tells whether packets at a hook come to the rules of a proxy.
func (w *world) hooked(p proxy, hook netfilter.Hook) bool {
	for _, t := range w.host.Tables {
		switch {
		case p.mode == "nftables" && "table "+t.Name == p.where:
			return slices.ContainsFunc(t.Chains(), func(c *netfilter.Chain) bool {
				return c.Hook == hook && c.Type == netfilter.NATChain && len(c.Rules) > 0
			})
		case p.mode == "iptables" && t.Name == netfilter.NAT && chainPlace(t, chainServices) == p.where:
			base := t.Chain(hook.ChainName())
			to := chainServices
			if hook == netfilter.Postrouting {
				to = chainPostrouting
			}
			return base != nil && reaches(t, base, to)
		}
	}
	return true
}

// reaches tells whether rules lead from a chain to another one.
func reaches(t *netfilter.Table, from *netfilter.Chain, to string) bool {
	seen := map[string]bool{from.Name: true}
	for queue := []*netfilter.Chain{from}; len(queue) > 0; queue = queue[1:] {
		for i := range queue[0].Rules {
			j, ok := queue[0].Rules[i].Target.(netfilter.Jump)
			if !ok || seen[j.Chain] {
				continue
			}
			if j.Chain == to {
				return true
			}
			seen[j.Chain] = true
			if c := t.Chain(j.Chain); c != nil {
				queue = append(queue, c)
			}
		}
	}
	return false
}
