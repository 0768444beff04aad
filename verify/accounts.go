package verify

import (
	"fmt"
	"slices"
	"strings"

	"portolan/netfilter"
)

// checkAccounts finds rules that count in nfacct objects that are not there: they
// cannot be loaded again.
func checkAccounts(w *world) (out []Finding) {
	if !w.host.Have.Accounts {
		return nil
	}
	missing := map[string]string{}
	for at, rule := range w.host.Rules() {
		for _, m := range rule.Matches {
			if a, ok := m.(netfilter.NFAcct); ok && !slices.Contains(w.host.Accounts, a.Name) && missing[a.Name] == "" {
				missing[a.Name] = fmt.Sprintf("%s rule %d", chainPlace(at.Table, at.Chain.Name), at.Number)
			}
		}
	}
	for name, where := range missing {
		out = append(out, Finding{
			Code: AccountMissing, Severity: Warning, Object: "nfacct " + name, Owner: w.proxy,
			Actual:   where + " counts in it, and it is not there: iptables-restore refuses these rules",
			Expected: "the object is made before the rules",
			Fix:      "nfacct add " + name,
		})
	}
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Object, b.Object) })
	return out
}
