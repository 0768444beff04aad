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

// podnetRules opens where the masquerade and forward rules of each family go: the
// iptables variant that the host uses, or tables of nftables.
func podnetRules(ctx context.Context, c podnet.Config, masquerade, forward, fullyRandom bool, log *slog.Logger) (map[podnet.Family]agent.Rules, func(), error) {
	render := func(t podnet.Topology) (m, f []podnet.Rule) {
		if masquerade {
			m = podnet.MasqueradeRules(t)
		}
		if forward {
			f = podnet.ForwardRules(t)
		}
		return m, f
	}
	if c.NFTables {
		return nftablesRules(c, render, fullyRandom)
	}
	host, err := iptables.Detect(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("podnet: %w", err)
	}
	log.Info("iptables", "variant", string(host.Variant), "reason", host.Reason)
	var tools []*iptables.Tool
	for _, f := range c.Families() {
		tools = append(tools, host.Tool(iptables.Family(f)))
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
	end := func() {
		stop()
		<-over
		_ = watch.Close() // nothing depends on it any more
	}
	out := map[podnet.Family]agent.Rules{}
	for i, f := range c.Families() {
		random := fullyRandom && tools[i].RandomFully()
		out[f] = agent.Rules{Kernel: linux.NewIPTables(tools[i], watch), Render: func(t podnet.Topology) []dataplane.Object {
			m, f := render(t)
			return podnet.IPTables(m, f, random)
		}}
	}
	return out, end, nil
}

func nftablesRules(c podnet.Config, render func(podnet.Topology) (m, f []podnet.Rule), fullyRandom bool) (map[podnet.Family]agent.Rules, func(), error) {
	out := map[podnet.Family]agent.Rules{}
	var conns []*nft.Conn
	end := func() {
		for _, c := range conns {
			_ = c.Close() // nothing depends on it any more
		}
	}
	for _, f := range c.Families() {
		conn, err := nft.Dial()
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("podnet: %w", err)
		}
		conns = append(conns, conn)
		out[f] = agent.Rules{Kernel: linux.NewNFTables(conn, f, fullyRandom), Render: func(t podnet.Topology) []dataplane.Object {
			return linux.NFTablesObjects(render(t))
		}}
	}
	return out, end, nil
}
