package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"portolan/kernel/iptables"
	"portolan/service"
)

// outOfReach tells of Service rules that the kernel has for a family in a variant of
// iptables whose programs are missing here: they go on translating, and nothing here
// can list, keep or remove them. It is nil where there are none.
func outOfReach(ctx context.Context, family service.Family) error {
	var errs []error
	for _, f := range toolFamilies {
		if f.model != family {
			continue
		}
		installed := installedTools(ctx, f.tool)
		for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
			if slices.ContainsFunc(installed, func(t *iptables.Tool) bool { return t.Variant == variant }) {
				continue
			}
			tool := iptables.NewTool(f.tool, variant)
			if has, err := tool.HasChain("nat", "KUBE-SERVICES"); err == nil && has {
				errs = append(errs, fmt.Errorf("%s: the kernel has Service rules of iptables, variant %s (nat KUBE-SERVICES), and %s and %s are not on the PATH: install them, or run portolan where they are",
					family, variant, tool.SaveProgram, tool.RestoreProgram))
			}
		}
	}
	return errors.Join(errs...)
}
