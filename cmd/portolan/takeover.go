package main

import (
	"context"
	"fmt"
	"log/slog"

	"portolan/agent"
	"portolan/backend/nftables"
	"portolan/config"
	"portolan/kernel/nft"
	"portolan/service"
)

// newTakeover returns what is to be told every attempt to write. In nftables mode
// it removes the table that kube-proxy left, in each family once ours is in force
// for the first time: until then kube-proxy's goes on serving, and as long as it is
// there its translation comes first, with endpoints that nobody keeps any more. The
// kernel takes it out in one transaction, so a packet meets both tables or ours.
// What failed is tried again after the next write.
func newTakeover(ctx context.Context, c config.Config, log *slog.Logger) func(agent.Result) {
	done := map[service.Family]*bool{service.IPv4: new(bool), service.IPv6: new(bool)}
	return func(r agent.Result) {
		done := done[r.Family] // results of one family come one after the other
		if c.Mode != config.NFTables || *done || r.Err != nil || !r.Full {
			return
		}
		removed, err := removePeer(ctx, r.Family)
		if err != nil {
			log.Error("kube-proxy's table could not be removed and goes on translating; will be tried again",
				"family", r.Family, "table", kubeProxyTable, "error", err)
			return
		}
		*done = true
		for _, what := range removed {
			log.Info("taken over from kube-proxy", "family", r.Family, "done", what)
		}
	}
}

// removePeer removes kube-proxy's table of one family, if it is there, and tells
// what it did.
func removePeer(ctx context.Context, f service.Family) ([]string, error) {
	conn, err := nft.Dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for _, t := range tableFamilies {
		if t.model == f {
			return nftables.Cleanup(ctx, conn, t.kernel, []string{kubeProxyTable}, false)
		}
	}
	panic(fmt.Sprintf("no tables of family %v", f))
}
