package main

import (
	"context"
	"log/slog"
	"sync"

	"portolan/agent"
	"portolan/healthcheck"
	"portolan/service"
)

// nodePortHealth keeps the health-check node ports of all families at what was
// written last.
type nodePortHealth struct {
	ctx      context.Context
	log      *slog.Logger
	families map[service.Family]*healthcheck.NodePorts
	last     map[service.Family]*service.Snapshot
	mu       sync.Mutex
}

func newNodePortHealth(ctx context.Context, health *healthcheck.Health, families []agent.Family, log *slog.Logger) *nodePortHealth {
	n := &nodePortHealth{ctx: ctx, log: log, families: map[service.Family]*healthcheck.NodePorts{}, last: map[service.Family]*service.Snapshot{}}
	for _, f := range families {
		n.families[f.Family] = healthcheck.NewNodePorts(health, f.Family)
	}
	return n
}

func (n *nodePortHealth) update(r agent.Result) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Err != nil {
		return
	}
	if err := n.families[r.Family].Update(n.ctx, r.Snapshot, n.last[r.Family]); err != nil {
		n.log.Error("health-check node ports", "error", err)
	}
	n.last[r.Family] = r.Snapshot
}

func (n *nodePortHealth) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.families {
		f.Close()
	}
}
