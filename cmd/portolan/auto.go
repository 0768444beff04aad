package main

import (
	"context"
	"fmt"
	"strings"

	"portolan/backend/nftables"
	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/kernel/nft"
)

// chooseMode returns the mode for a host that was asked for none, and why: that
// of the Service rules that are there, ours or kube-proxy's, so that a node stays
// in its mode; on a clean host nftables where the kernel has all it takes.
func chooseMode(ctx context.Context) (config.Mode, string) {
	if table := serviceTable(); table != "" {
		return config.NFTables, "the nftables table " + table + " is there"
	}
	if where := serviceChains(ctx); where != "" {
		return config.IPTables, "Service rules of iptables are there: " + where
	}
	if err := probeTables(); err != nil {
		return config.IPTables, fmt.Sprintf("no Service rules are there, and nftables mode cannot be used: %v", err)
	}
	return config.NFTables, "no Service rules are there, and the kernel has all that nftables mode takes"
}

// serviceTable names a table of a Service proxy; what cannot be read counts as
// not there.
func serviceTable() string {
	conn, err := nft.Dial()
	if err != nil {
		return ""
	}
	defer conn.Close()
	for _, f := range tableFamilies {
		if found, err := nftables.Tables(conn, f.kernel, nftables.TableName, kubeProxyTable); err == nil && len(found) > 0 {
			return f.kernel.String() + " " + found[0]
		}
	}
	return ""
}

// serviceChains names the iptables in which a Service proxy has rules.
func serviceChains(ctx context.Context) string {
	for _, f := range toolFamilies {
		for _, tool := range installedTools(ctx, f.tool) {
			if tool.Loaded("nat") && hasServices(ctx, tool) {
				return fmt.Sprintf("%s, variant %s", f.model, tool.Variant)
			}
		}
	}
	return ""
}

func hasServices(ctx context.Context, tool *iptables.Tool) bool {
	for line, err := range tool.Save(ctx, "nat") {
		if err != nil || strings.HasPrefix(line, "-A ") {
			return false // chains come before rules
		}
		if strings.HasPrefix(line, ":KUBE-SERVICES ") {
			return true
		}
	}
	return false
}

// probeTables tells why nftables mode cannot be used.
func probeTables() error {
	conn, err := nft.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	return nftables.New(nftables.Options{Family: tableFamilies[0].model, Conn: conn}).Probe()
}
