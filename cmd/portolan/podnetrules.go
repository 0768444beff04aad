package main

import (
	"context"
	"fmt"
	"log/slog"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/kernel/nft"
	"portolan/podnet"
	"portolan/podnet/agent"
	"portolan/podnet/linux"
)

// renderRules are the rules that the flags ask for.
func (f *podnetFlags) renderRules(t podnet.Topology) (masquerade, forward []podnet.Rule) {
	if f.masquerade {
		masquerade = podnet.MasqueradeRules(t)
	}
	if f.forward {
		forward = podnet.ForwardRules(t)
	}
	return masquerade, forward
}

// openRules opens where the masquerade and forward rules of each family go: the
// iptables variant that the host uses, or tables of nftables.
func (f *podnetFlags) openRules(ctx context.Context, c podnet.Config, log *slog.Logger) (rules map[podnet.Family]agent.Rules, end func(), err error) {
	if c.NFTables {
		return f.openNFTables(c)
	}
	host, err := iptables.Detect(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("podnet: %w", err)
	}
	log.Info("iptables", "variant", string(host.Variant), "reason", host.Reason)
	var tools []*iptables.Tool
	for _, family := range c.Families() {
		tools = append(tools, host.Tool(iptables.Family(family)))
	}
	watch, err := iptables.NewWatch(tools...)
	if err != nil {
		return nil, nil, fmt.Errorf("podnet: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		watch.Run(watching)
	}()
	end = func() {
		stop()
		<-over
		_ = watch.Close() // nothing depends on it any more
	}
	rules = map[podnet.Family]agent.Rules{}
	for i, family := range c.Families() {
		random := !f.noFullyRandom && tools[i].RandomFully()
		rules[family] = agent.Rules{Kernel: linux.NewIPTables(tools[i], watch), Render: func(t podnet.Topology) []dataplane.Object {
			masquerade, forward := f.renderRules(t)
			return podnet.IPTables(masquerade, forward, random)
		}}
	}
	return rules, end, nil
}

// openNFTables is openRules for tables of nftables.
func (f *podnetFlags) openNFTables(c podnet.Config) (rules map[podnet.Family]agent.Rules, end func(), err error) {
	rules = map[podnet.Family]agent.Rules{}
	var conns []*nft.Conn
	end = func() {
		for _, c := range conns {
			_ = c.Close() // nothing depends on it any more
		}
	}
	for _, family := range c.Families() {
		conn, err := nft.Dial()
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("podnet: %w", err)
		}
		conns = append(conns, conn)
		rules[family] = agent.Rules{Kernel: linux.NewNFTables(conn, family, !f.noFullyRandom), Render: func(t podnet.Topology) []dataplane.Object {
			return linux.NFTablesObjects(f.renderRules(t))
		}}
	}
	return rules, end, nil
}
