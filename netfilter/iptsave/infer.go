package iptsave

import (
	"strings"

	"portolan/netfilter"
)

// natSigns are words that only rules of the nat table have.
var natSigns = []string{"-j MASQUERADE", "-j DNAT", "-j SNAT", "-j REDIRECT", "KUBE-SVC-", "KUBE-SEP-", "KUBE-POSTROUTING", "KUBE-MARK-MASQ"}

// filterSigns are words that rules of the nat table never have.
var filterSigns = []string{"-j REJECT", "-j DROP", "KUBE-FORWARD", "KUBE-FIREWALL", "KUBE-PROXY-FIREWALL"}

// clearTable reports whether a text has targets or chains of one table only.
func clearTable(text string) bool {
	return hasAny(text, natSigns) || hasAny(text, filterSigns)
}

func hasAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

// inferTable guesses which table a text without table names is of: by the
// targets that only one table allows, then by the built-in chains it has.
func inferTable(text string) string {
	chain := func(name string) bool {
		return strings.Contains(text, "-P "+name+" ") || strings.Contains(text, "-A "+name+" ") || strings.Contains(text, "Chain "+name+" (")
	}
	switch {
	case hasAny(text, natSigns):
		return netfilter.NAT
	case strings.Contains(text, "NOTRACK"), strings.Contains(text, "-j CT "), strings.Contains(text, "-j TRACE"):
		return netfilter.Raw
	case chain("PREROUTING") && chain("FORWARD"), chain("POSTROUTING") && chain("FORWARD"), strings.Contains(text, "TPROXY"):
		return netfilter.Mangle
	case chain("PREROUTING") && chain("POSTROUTING"), chain("POSTROUTING"):
		return netfilter.NAT
	case hasAny(text, filterSigns), chain("INPUT"), chain("FORWARD"):
		return netfilter.Filter
	case chain("PREROUTING") && chain("OUTPUT") && !strings.Contains(text, "KUBE-SERVICES"):
		return netfilter.Raw
	case chain("PREROUTING"):
		return netfilter.NAT
	}
	return netfilter.Filter
}
