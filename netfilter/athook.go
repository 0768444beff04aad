package netfilter

import (
	"cmp"
	"slices"
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
