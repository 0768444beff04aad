package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"portolan/backend/nftables"
	"portolan/config"
	"portolan/kernel/nft"
)

// chooseMode returns the mode for a host that was asked for none, and why: that
// of the Service rules that are there, ours or kube-proxy's, so that a node stays
// in its mode; on a clean host nftables where the kernel has all it takes.
func chooseMode(ctx context.Context) (config.Mode, string) {
	if table := serviceTable(); table != "" {
		return config.NFTables, "the nftables table " + table + " is there"
	}
	if mode, where := serviceChains(ctx); where != "" {
		return mode, fmt.Sprintf("Service rules of %s mode are there: %s", mode, where)
	}
	there := "no Service rules are there"
	for _, f := range toolFamilies {
		if err := outOfReach(ctx, f.model); err != nil {
			there = err.Error()
			break
		}
	}
	if err := probeTables(); err != nil {
		return config.IPTables, fmt.Sprintf("%s, and nftables mode cannot be used: %v", there, err)
	}
	return config.NFTables, there + ", and the kernel has all that nftables mode takes"
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

// serviceChains names the iptables in which a Service proxy has rules, and the mode
// that they are of; empty where none has.
func serviceChains(ctx context.Context) (config.Mode, string) {
	for _, f := range toolFamilies {
		for _, tool := range installedTools(ctx, f.tool) {
			if len(tool.Filled("nat")) == 0 {
				continue
			}
			if mode := modeOf(tool.Save(ctx, "nat")); mode != config.Auto {
				return mode, fmt.Sprintf("%s, variant %s", f.model, tool.Variant)
			}
		}
	}
	return config.Auto, ""
}

// modeOf tells from a saved nat table which mode its Service rules are of; Auto when
// there are none. ipvs mode has KUBE-NODE-PORT where iptables mode has KUBE-NODEPORTS;
// where both are, those of ipvs mode were left behind.
func modeOf(nat iter.Seq2[string, error]) config.Mode {
	chains := map[string]bool{}
	for line, err := range nat {
		if err != nil || strings.HasPrefix(line, "-A ") {
			break // chains come before rules
		}
		chain, _, _ := strings.Cut(strings.TrimPrefix(line, ":"), " ")
		chains[chain] = true
	}
	switch {
	case !chains["KUBE-SERVICES"]:
		return config.Auto
	case chains["KUBE-NODE-PORT"] && !chains["KUBE-NODEPORTS"]:
		return config.IPVS
	}
	return config.IPTables
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
