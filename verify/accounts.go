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
	for _, t := range w.host.Tables {
		for _, c := range t.Chains() {
			for i := range c.Rules {
				for _, m := range c.Rules[i].Matches {
					if a, ok := m.(netfilter.NFAcct); ok && !slices.Contains(w.host.Accounts, a.Name) && missing[a.Name] == "" {
						missing[a.Name] = fmt.Sprintf("%s rule %d", chainPlace(t, c.Name), i+1)
					}
				}
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
