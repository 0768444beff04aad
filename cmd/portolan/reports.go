package main

import (
	"sync"
	"time"

	"portolan/agent"
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

func (r *reports) queued(f service.Family) {
	r.health.Queued(f)
	r.counts.Queued(f)
}

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
