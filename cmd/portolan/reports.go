package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"portolan/agent"
	"portolan/config"
	"portolan/healthcheck"
	"portolan/metrics"
	"portolan/service"
	"portolan/source/apiserver"
)

// reports tell whom it concerns that something is to be written, how an attempt to
// write went, and what is wrong.
type reports struct {
	health    *healthcheck.Health
	counts    *metrics.Metrics
	ports     *nodePortHealth
	others    *takeover
	flows     flows
	drift     driftLog
	conntrack func() // what the kernel takes only once rules are there; may be nil
	events    func(apiserver.Note)
	journal   *agent.Journal

	once sync.Once
}

// begin makes those that are told what the agent does.
func (r *reports) begin(ctx context.Context, c config.Config, kernel backends, log *slog.Logger) {
	families := familiesOf(kernel.families)
	r.counts = newMetrics(c, families)
	r.health = healthcheck.NewHealth(2*c.SyncPeriod, families)
	r.ports = newNodePortHealth(ctx, r.health, kernel.families, log)
	r.others = newTakeover(c.Mode, kernel.variant, log, r.tell)
	r.flows = newFlows(c, families, r.counts, log)
	r.drift.start(families)
}

// watch has them ask the agent, the kernel and the source when they are asked.
func (r *reports) watch(a *agent.Agent, kernel backends, source input) {
	r.journal = a.Journal()
	r.health.TellPending(func(f service.Family) healthcheck.Pending { return healthcheck.Pending(a.Pending(f)) })
	r.health.TellMore(source.conditions)
	r.health.TellMore(r.drift.conditions)
	r.counts.Watch(a)
	r.counts.WatchDropped(kernel.dropped, a.Written)
}

func (r *reports) queued(f service.Family) {
	r.health.Queued(f)
	r.counts.Queued(f)
}

// synced passes on what the agent says of a write.
func (r *reports) synced(result agent.Result) {
	r.others.note(result)
	r.health.Attempted(result.Family, healthcheck.Attempt{Err: result.Err, Failed: result.Refused})
	r.counts.Synced(result)
	r.drift.note(time.Now(), result)
	r.flows.written(result)
	r.tellEvents(result.Family, result.News) // the agent has them in its journal
	if result.Err != nil {
		return
	}
	for _, n := range r.ports.update(result) {
		r.tell(n)
	}
	if r.conntrack != nil {
		r.once.Do(r.conntrack)
	}
}

// tell takes what went wrong beside writing rules.
func (r *reports) tell(n agent.News) {
	r.journal.Note(time.Now(), n)
	r.tellEvents(n.Family, []agent.News{n})
}

func (r *reports) tellEvents(f service.Family, news []agent.News) {
	for _, note := range notesOf(f, news) {
		r.events(note)
	}
}
