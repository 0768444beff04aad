package iptables

import (
	"context"
	"fmt"
	"slices"

	"portolan/kernel/iptables"
)

// Cleanup removes every chain of ours and every jump to one, which are
// kube-proxy's too, and nothing else; kubelet's KUBE-FIREWALL stays with its
// rule and jumps. It returns what it removed, or would remove in a dry run, as
// iptables.Tool.Remove does. Where nothing is left it returns nothing.
func (b *Backend) Cleanup(ctx context.Context, dryRun bool) ([]string, error) {
	removed, err := b.options.Tool.Remove(ctx, tables, iptables.Removal{
		Chains:    ownChain,
		Elsewhere: func(chain string) bool { return slices.Contains(ipvsChains, chain) },
	}, dryRun)
	if err != nil {
		err = fmt.Errorf("iptables: cleanup: %w", err)
	}
	return removed, err
}

// ipvsChains lead to ours in kube-proxy's and our ipvs mode; who cleans up removes
// them first.
var ipvsChains = []string{"nat/KUBE-NODE-PORT", "nat/KUBE-LOAD-BALANCER"}
