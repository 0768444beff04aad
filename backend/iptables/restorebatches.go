package iptables

import (
	"cmp"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// nftBatch is the number of new chains in one section for the nft variant, whose
// time grows with the square of it: 1.8.9 took 31 s to load 3,000 Services with
// 10 endpoints in one section, and 2.4 s in sections of 200 chains.
const nftBatch = 200

func (b *Backend) batch() int {
	if b.options.Tool.Variant == iptables.NFT {
		return nftBatch
	}
	return 0
}

// prepare writes new chains of Services that nothing leads to yet, in sections
// of their own, if there are many, and returns the changes that are left. No
// packet can pass these chains before the last section leads to them, so that
// the table still changes for traffic in one step.
func (in *restoreText) prepare(nat []dataplane.Change) []dataplane.Change {
	if in.batch == 0 {
		return nat
	}
	var fresh, rest []dataplane.Change
	for _, c := range nat {
		if !c.Exists && !c.Keyed && dependence(c.Container) >= 0 {
			fresh = append(fresh, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(fresh) <= in.batch {
		return nat
	}
	slices.SortStableFunc(fresh, func(a, b dataplane.Change) int {
		return cmp.Compare(dependence(a.Container), dependence(b.Container))
	})
	for section := range slices.Chunk(fresh, in.batch) {
		slices.SortFunc(section, func(a, b dataplane.Change) int { return cmp.Compare(a.Container, b.Container) })
		in.table("nat", section)
	}
	return rest
}

// dependence orders chains so that each leads only to those before it; -1 for
// chains that traffic enters from outside.
func dependence(container string) int {
	if container == natMarkMasq {
		return 0
	}
	if level, is := choiceLevel(container); is {
		return 1 + level
	}
	for i, prefix := range dependent {
		if strings.HasPrefix(container, prefix) {
			return 1 + toChains + 1 + i
		}
	}
	return -1
}

// dependent are chains that lead to choices or endpoints, in the order of dependence.
var dependent = []string{endpointChain, clusterChain, localChain, externalChain, firewallChain,
	addressLeaf, portLeaf, hairpinLeaf, hairpinBranch, addressBranch, natHairpin}
