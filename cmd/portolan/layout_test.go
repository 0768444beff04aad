package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/service"
)

func TestManyServicesInTheNftVariant(t *testing.T) {
	many := (&service.Snapshot{}).With(service.Node{}, manyNames(manyServices+1), nil)
	few := (&service.Snapshot{}).With(service.Node{}, manyNames(manyServices), nil)
	compact := config.Config{Mode: config.IPTables}
	compact.Options.IPTables.Layout = config.Compact
	for name, c := range map[string]struct {
		config  config.Config
		variant iptables.Variant
		seen    []*service.Snapshot
		warns   int
	}{
		"few":            {config.Config{Mode: config.IPTables}, iptables.NFT, []*service.Snapshot{few, few}, 0},
		"many, once":     {config.Config{Mode: config.IPTables}, iptables.NFT, []*service.Snapshot{few, many, many}, 1},
		"many, again":    {config.Config{Mode: config.IPTables}, iptables.NFT, []*service.Snapshot{many, few, many}, 2},
		"legacy":         {config.Config{Mode: config.IPTables}, iptables.Legacy, []*service.Snapshot{many}, 0},
		"compact":        {compact, iptables.NFT, []*service.Snapshot{many}, 0},
		"nftables":       {config.Config{Mode: config.NFTables}, iptables.NFT, []*service.Snapshot{many}, 0},
		"ipvs, by rules": {config.Config{Mode: config.IPVS}, iptables.NFT, []*service.Snapshot{many}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			tell := newLayoutLog(c.config, c.variant, slog.New(slog.NewTextHandler(&out, nil)))
			for _, s := range c.seen {
				tell(s)
			}
			if got := strings.Count(out.String(), "level=WARN"); got != c.warns {
				t.Errorf("%d warnings, want %d:\n%s", got, c.warns, out.String())
			}
			if c.warns > 0 && !(strings.Contains(out.String(), "nftables") && strings.Contains(out.String(), "--iptables-layout compact")) {
				t.Errorf("no better mode is named:\n%s", out.String())
			}
		})
	}
}

func manyNames(n int) (out []*service.Service) {
	for i := range n {
		out = append(out, &service.Service{Name: service.Name{Namespace: "default", Name: fmt.Sprint("s", i)}})
	}
	return out
}
