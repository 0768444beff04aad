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
	"portolan/source/kube"
)

const (
	retryMin   = time.Second
	fullPeriod = time.Hour // as kube-proxy; changes by others are noticed apart from it
)

// runProxy works until ctx ends, which is no error: rules stay in place. While it
// ends, the servers answer until nothing is written any more.
func runProxy(ctx context.Context, c config.Config, settings kube.Settings, log *slog.Logger) error {
	follow, err := newInput(c, settings.NodeName, log)
	if err != nil {
		return err
	}
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost() && allowLocalhostNodePorts(log)
	warnAboutForwarding(log)
	missing := setUpKernel(c, log)
	var counts *metrics.Metrics
	kernel, err := newBackends(ctx, c, log, func(f service.Family, err error) {
		log.Error("cleaning up failed, will be looked at again", "family", f, "error", err)
		counts.CleanupFailed(f)
	})
	if err != nil {
		return err
	}
	families := kernel.families
	counts = newMetrics(c, familiesOf(families))
	health := healthcheck.NewHealth(2*c.SyncPeriod, familiesOf(families))
	ports := newNodePortHealth(ctx, health, families, log)
	defer ports.close()
	others := newTakeover(c.Mode, kernel.variant, log, func(f service.Family) { counts.CleanupFailed(f) })
	stale := newFlows(c, familiesOf(families), counts, log)
	var again sync.Once
	options := pace(c, log)
	options.Queued = func(f service.Family) {
		health.Queued(f)
		counts.Queued(f)
	}
	options.Synced = func(r agent.Result) {
		others.note(r)
		health.Attempted(r.Family, healthcheck.Attempt{Err: r.Err, Failed: r.Refused})
		counts.Synced(r)
		ports.update(r)
		stale.written(r)
		if missing && r.Err == nil { // rules have the kernel track connections
			again.Do(func() { setUpConntrack(c, log) })
		}
	}
	a := agent.New(counts.CountRules(families), options)
	health.TellPending(func(f service.Family) healthcheck.Pending { return healthcheck.Pending(a.Pending(f)) })
	cluster := kube.NewCluster(settings)
	if kernel.large {
		cluster.StartLarge()
	}
	counts.Watch(a)
	pages, err := counts.NewMux(pagesOf(c))
	if err != nil {
		return err
	}
	work := newCrew(ctx)
	work.serve(c, servers{health: counts.CountAnswers(health.Handler()), metrics: pages}, log)
	work.add(c.Watch)
	work.add(others.run)
	loopback := newLoopback(c, work, health, counts, log)
	stale.join(work)
	work.add(func(ctx context.Context) error {
		detect := newDetectorLog(c.DetectLocalMode, familiesOf(families), log)
		return follow(ctx, cluster, watchAddresses(ctx, settings, log), func(s *service.Snapshot) {
			detect(s.Node)
			health.SetEligible(!s.Node.Leaving)
			a.Publish(s)
			loopback(s)
		})
	})
	a.Run(work.ctx)
	return work.end()
}

func pace(c config.Config, log *slog.Logger) agent.Options {
	return agent.Options{MinSyncPeriod: c.MinSyncPeriod, FullPeriod: fullPeriod, RetryMin: retryMin, RetryMax: c.SyncPeriod, Log: log}
}

func familiesOf(list []agent.Family) (out []service.Family) {
	for _, f := range list {
		out = append(out, f.Family)
	}
	return out
}
