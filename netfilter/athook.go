package netfilter

import (
	"cmp"
	"slices"
	"strings"
)

// Hooked is a base chain with the table it is of.
type Hooked struct {
	Table *Table
	Chain *Chain
}

// Priority is where the chain runs at its hook: lower runs first. All nat
// chains run where the kernel has its one place for nat, -100 for destinations
// and 100 for sources, whatever their own priority, which orders them among
// themselves (seen with Linux 6.18).
func (b Hooked) Priority() int {
	if b.Chain.Type != NATChain {
		return b.Chain.Priority
	}
	return Priority(NAT, b.Chain.Hook, b.Table.Variant)
}

// AtHook lists the base chains of a hook in the order in which they run. Of
// equal priority, legacy tables come first, whose registration no dump tells;
// then nft's, the one that was registered last first (seen with Linux 6.18).
func (h *Host) AtHook(f Family, hook Hook) []Hooked {
	var out []Hooked
	nat := 0 // when the one place for nat was registered: with the first chain
	for _, t := range h.Tables {
		if !t.Serves(f) {
			continue
		}
		for _, c := range t.Chains() {
			if c.Type == NATChain && c.Hook != NoHook && (nat == 0 || c.Order < nat) {
				nat = c.Order
			}
			if c.Hook == hook {
				out = append(out, Hooked{t, c})
			}
		}
	}
	order := func(b Hooked) int {
		if b.Chain.Type == NATChain {
			return nat
		}
		return b.Chain.Order
	}
	slices.SortStableFunc(out, func(a, b Hooked) int {
		if a.Chain.Type == NATChain && b.Chain.Type == NATChain {
			return cmp.Or(a.Chain.Priority-b.Chain.Priority, rank(a)-rank(b), b.Chain.Order-a.Chain.Order)
		}
		return cmp.Or(a.Priority()-b.Priority(), rank(a)-rank(b), order(b)-order(a))
	})
	return out
}

// rank orders chains of equal priority of different holders.
func rank(b Hooked) int {
	switch b.Table.Variant {
	case Unstated, Legacy:
		return int(b.Table.Variant)
	}
	return int(NFT)
}

// IPTablesName tells whether a native table is one that iptables-nft keeps,
// and then its name there: ip or ip6, one of the five names, and base chains
// as iptables has them, at least one.
func IPTablesName(t *Table) (name string, is bool) {
	family, name, _ := strings.Cut(t.Name, " ")
	if t.Variant != Native || (family != "ip" && family != "ip6") || TableHooks(name) == nil {
		return "", false
	}
	based := false
	for _, c := range t.Chains() {
		if c.Hook == NoHook {
			continue
		}
		if c.Hook != HookOfChain(c.Name) || !HasHook(name, c.Hook) || c.Priority != Priority(name, c.Hook, NFT) {
			return "", false
		}
		based = true
	}
	return name, based
}

// PreferIPTables leaves out the native tables that iptables texts give too,
// and says which. What the listing knows of the order in which chains were
// registered is kept.
func (h *Host) PreferIPTables() (remarks []string) {
	var keep []*Table
	for _, t := range h.Tables {
		name, is := IPTablesName(t)
		better := h.Table(t.Family, NFT, name)
		if better == nil {
			better = h.Table(t.Family, Unstated, name)
		}
		if !is || better == nil || better.Variant == Legacy || better.Variant == Native || !sameChains(t, better) {
			keep = append(keep, t)
			continue
		}
		for _, c := range better.Chains() {
			if x := t.Chain(c.Name); x != nil {
				c.Order = x.Order
			}
		}
		remarks = append(remarks, "table "+t.Name+" in "+t.File+" is iptables' own and was taken from "+better.File+", which says more")
		h.Warnings = slices.DeleteFunc(h.Warnings, func(w string) bool { return strings.HasPrefix(w, "table "+t.Name+" is iptables' own: ") })
	}
	h.Tables = keep
	return remarks
}

// sameChains reports whether all chains of a table are in another one too.
func sameChains(a, b *Table) bool {
	for _, c := range a.Chains() {
		if b.Chain(c.Name) == nil {
			return false
		}
	}
	return true
}
