package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	backend "portolan/backend/iptables"
	"portolan/kernel/iptables"
)

func newCleanupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the Service rules of Portolan and of kube-proxy from this node",
		Long: `Removes the chains and jumps that Portolan or kube-proxy wrote, from both
variants of iptables and both IP families, and the nftables tables "portolan" and
"kube-proxy", and nothing else. KUBE-FIREWALL is kubelet's too and stays. A second run finds nothing and is fine. Needs root.`,
		Example: `  portolan cleanup --dry-run`,
		Args:    cobra.NoArgs,
	}
	dryRun := cmd.Flags().Bool("dry-run", false, "only list what would be removed")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var errs []error
		for _, f := range toolFamilies {
			for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
				b := backend.New(backend.Options{Family: f.model, Tool: iptables.NewTool(f.tool, variant)})
				removed, err := b.Cleanup(cmd.Context(), *dryRun)
				for _, line := range removed {
					fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s\n", f.model, variant, line)
				}
				if err != nil {
					errs = append(errs, fmt.Errorf("%s, variant %s: %w", f.model, variant, err))
				}
			}
		}
		errs = append(errs, cleanupTables(cmd.Context(), *dryRun, cmd.OutOrStdout()))
		return errors.Join(errs...)
	}
	return cmd
}
