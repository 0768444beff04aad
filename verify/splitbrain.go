package verify

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// checkSplitBrain finds Service rules in both variants of iptables.
func checkSplitBrain(w *world) (out []Finding) {
	holders := map[netfilter.Variant]string{}
	var foreign []string
	for _, t := range w.host.Tables {
		if t.Variant != netfilter.Legacy && t.Variant != netfilter.NFT {
			continue
		}
		if t.Name == netfilter.NAT && t.Chain(chainServices) != nil && len(t.Chain(chainServices).Rules) > 0 {
			holders[t.Variant] = chainPlace(t, chainServices)
		}
		foreign = append(foreign, chainPlace(t, ""))
	}
	if len(holders) < 2 {
		return nil
	}
	return []Finding{{
		Code: SplitBrain, Severity: Error, Object: strings.Join([]string{holders[netfilter.Legacy], holders[netfilter.NFT]}, " and "),
		Actual:   fmt.Sprintf("both variants of iptables hold Service rules (%s), and both run", some(foreign)),
		Expected: "one variant holds all rules of iptables",
		Owner:    w.proxy,
		Fix:      "find which variant the proxy writes now (portolan version), and remove the Service rules of the other one (portolan cleanup, then restart the proxy)",
		Link:     "https://github.com/kubernetes/kubernetes/issues/71305",
	}}
}
