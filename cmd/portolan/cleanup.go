package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	backend "portolan/backend/iptables"
	"portolan/backend/nftables"
	"portolan/kernel/iptables"
)

func newCleanupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the Service rules of Portolan and of kube-proxy from this node",
		Long: `Removes the chains and jumps that Portolan or kube-proxy wrote, from both
variants of iptables and both IP families, with every jump to them from a
built-in chain, the nftables tables "portolan" and "kube-proxy", and of ipvs mode
the virtual servers, addresses and sets of Services, and nothing else. A chain that a chain of somebody else leads to stays, empty, and is an
error. KUBE-FIREWALL is kubelet's too and stays. A
second run finds nothing and is fine. Needs root.

With --own it is for a node that kube-proxy has taken over: only the nftables tables
"portolan" go, which kube-proxy does not know. It takes over and removes everything
else of Portolan by itself.`,
		Example: `  portolan cleanup --dry-run
  portolan cleanup --own`,
		Args: takes(0, 0),
	}
	dryRun := cmd.Flags().Bool("dry-run", false, "only list what would be removed")
	own := cmd.Flags().Bool("own", false, "only remove what kube-proxy neither uses nor removes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *own {
			return cleanupTables(cmd.Context(), *dryRun, cmd.OutOrStdout(), nftables.TableName)
		}
		return cleanup(cmd.Context(), *dryRun, cmd.OutOrStdout())
	}
	return cmd
}

// cleanup removes the rules of every mode, and says which.
func cleanup(ctx context.Context, dryRun bool, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("cleanup: to read and write rules needs root")
	}
	var errs []error
	tell := func(lines []string, err error) {
		for _, line := range lines {
			fmt.Fprintln(out, line)
		}
		errs = append(errs, err)
	}
	for _, f := range toolFamilies { // they lead to those of iptables mode
		tell(cleanupServerRules(ctx, f.model, installedTools(ctx, f.tool), dryRun))
	}
	for _, f := range toolFamilies {
		for _, tool := range installedTools(ctx, f.tool) {
			b := backend.New(backend.Options{Family: f.model, Tool: tool})
			removed, err := b.Cleanup(ctx, dryRun)
			for _, line := range removed {
				fmt.Fprintf(out, "%s %s: %s\n", f.model, tool.Variant, line)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s, variant %s: %w", f.model, tool.Variant, err))
			}
		}
		errs = append(errs, outOfReach(ctx, f.model))
	}
	errs = append(errs, cleanupTables(ctx, dryRun, out, nftables.TableName, kubeProxyTable))
	for _, f := range toolFamilies {
		lines, err := cleanupServers(ctx, f.model, dryRun)
		tell(lines, err)
		if len(lines) > 0 && !dryRun {
			errs = append(errs, restoreIPVS(out))
		}
	}
	return errors.Join(errs...)
}

// installedTools returns the programs of every variant that this host has for
// the family; where none carries a variant in its name, the plain ones.
func installedTools(ctx context.Context, f iptables.Family) []*iptables.Tool {
	installed := func(t *iptables.Tool) bool {
		_, err1 := exec.LookPath(t.SaveProgram)
		_, err2 := exec.LookPath(t.RestoreProgram)
		return err1 == nil && err2 == nil
	}
	var out []*iptables.Tool
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		if t := iptables.NewTool(f, variant); installed(t) {
			out = append(out, t)
		}
	}
	if len(out) > 0 {
		return out
	}
	if host, err := iptables.Detect(ctx); err == nil && installed(host.Tool(f)) {
		out = append(out, host.Tool(f))
	}
	return out
}
