package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"portolan/agent"
	"portolan/healthcheck"
	"portolan/service"
)

// portTaken is kube-proxy's reason for a health-check node port that cannot be
// listened on.
const portTaken agent.Reason = "FailedToStartServiceHealthcheck"

// nodePortHealth keeps the health-check node ports of all families at what was
// written last.
type nodePortHealth struct {
	ctx      context.Context
	log      *slog.Logger
	families map[service.Family]*nodePortFamily
	mu       sync.Mutex
}

// nodePortFamily are the health-check node ports of one family, and what they were told
// last.
type nodePortFamily struct {
	ports  *healthcheck.NodePorts
	last   *service.Snapshot
	failed map[service.Name]error
}

func newNodePortHealth(ctx context.Context, health *healthcheck.Health, families []agent.Family, log *slog.Logger) *nodePortHealth {
	n := &nodePortHealth{ctx: ctx, log: log, families: map[service.Family]*nodePortFamily{}}
	for _, f := range families {
		n.families[f.Family] = &nodePortFamily{ports: healthcheck.NewNodePorts(health, f.Family)}
	}
	return n
}

// update follows what was written, and tells of ports that cannot be had.
func (n *nodePortHealth) update(r agent.Result) (news []agent.News) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.families[r.Family]
	failed := f.ports.Update(n.ctx, r.Snapshot, f.last)
	add := func(name service.Name, err error, over bool) {
		news = append(news, agent.News{Object: name.String(), Family: r.Family, Reason: portTaken,
			Message: fmt.Sprintf("%v; it is tried again with every write", err), Over: over, Gone: over && r.Snapshot.Service(name) == nil})
	}
	for _, name := range slices.SortedFunc(maps.Keys(failed), service.Name.Compare) {
		if before := f.failed[name]; before == nil || before.Error() != failed[name].Error() {
			n.log.Error("a health-check node port cannot be listened on", "family", r.Family, "error", failed[name])
			add(name, failed[name], false)
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(f.failed), service.Name.Compare) {
		if failed[name] == nil {
			add(name, f.failed[name], true)
		}
	}
	f.last, f.failed = r.Snapshot, failed
	return news
}

func (n *nodePortHealth) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.families {
		f.ports.Close()
	}
}
