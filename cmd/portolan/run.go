package main

import (
	"context"
	"log/slog"
	"time"

	"portolan/agent"
	"portolan/config"
	"portolan/metrics"
	"portolan/service"
	"portolan/slowstart"
	"portolan/source/kube"
)

const (
	retryMin   = 100 * time.Millisecond // most failures are over soon: somebody else wrote at the same time
	fullPeriod = time.Hour              // as kube-proxy; changes by others are noticed apart from it
)

// runProxy works until ctx ends, which is no error: rules stay in place. While it
// ends, the servers answer until nothing is written any more.
//
// Services flow from the source through the ramp to the agent, which writes them. What
// it says goes to the reports. Each part is made with those that it tells, so the order
// is from the reports up to the source; only two need each other, the agent and the
// reports, and watch joins them.
func runProxy(ctx context.Context, c config.Config, settings kube.Settings, shown metrics.Pages, log *slog.Logger) error {
	limitMemory(log)
	saveMemory(c.Mode)
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost() && allowLocalhostNodePorts(log)
	cluster := kube.NewCluster(settings)
	source, err := newInput(c, cluster, settings.NodeName, log)
	if err != nil {
		return err
	}
	warnAboutForwarding(log)

	report := &reports{events: source.tell}
	kernel, err := prepareKernel(ctx, c, report, log)
	if err != nil {
		return err
	}
	cluster.StartLarge(kernel.wasLarge)
	report.begin(ctx, c, kernel, log)
	defer report.ports.close()
	a := agent.New(report.counts.CountRules(kernel.families), pace(c, report, log))
	report.watch(a, kernel, source)

	shown.Failures = a.Journal()
	pages, err := report.counts.NewMux(shown)
	if err != nil {
		return err
	}
	source.tell(startNote(c.Mode)) // what cannot work has said so by now
	work := newCrew(ctx)
	work.serve(c, servers{health: report.counts.CountAnswers(report.health.Handler()), metrics: pages}, log)
	work.add(c.Watch)
	work.add(report.others.run)
	report.flows.join(work, log)
	loopback := newLoopback(c, work, report.health, report.counts, log)
	ramp := slowstart.New(func(s *service.Snapshot) {
		a.Publish(s)
		loopback(s)
	})
	defer ramp.Stop()
	look := newOnlookers(c, source, kernel, report, log)
	work.add(func(ctx context.Context) error {
		return source.follow(ctx, watchAddresses(ctx, settings, log), func(s *service.Snapshot) {
			look(s)
			ramp.Publish(s)
		})
	})
	a.Run(work.ctx)
	return work.end()
}

// newOnlookers returns what sees every Snapshot ahead of the agent and only looks: at what
// of the cluster or of the configuration people should hear about.
func newOnlookers(c config.Config, source input, kernel backends, report *reports, log *slog.Logger) func(*service.Snapshot) {
	detect := newDetectorLog(c.DetectLocalMode, familiesOf(kernel.families), log)
	complain := newComplaintLog(complaintsIn(c), log, source.tell)
	many := newLayoutLog(c, kernel.variant, log)
	return func(s *service.Snapshot) {
		detect(s.Node)
		report.health.SetEligible(!s.Node.Leaving)
		complain(s)
		many(s)
	}
}

// prepareKernel has the kernel do what the mode needs, and makes the backends that write
// to it.
func prepareKernel(ctx context.Context, c config.Config, report *reports, log *slog.Logger) (backends, error) {
	if setUpKernel(c, log) { // what is missing is there once rules have the kernel track connections
		report.conntrack = func() { setUpConntrack(c, log) }
	}
	if err := setUpIPVS(c, log); err != nil {
		return backends{}, err
	}
	return newBackends(ctx, c, log, func(f service.Family, err error) {
		log.Error("cleaning up failed, will be looked at again", "family", f, "error", err)
		report.counts.CleanupFailed(f)
	})
}

// pace says how often the agent writes and looks, and whom it tells.
func pace(c config.Config, report *reports, log *slog.Logger) agent.Options {
	o := agent.Options{MinSyncPeriod: c.MinSyncPeriod, FullPeriod: fullPeriod, RetryMin: retryMin, RetryMax: c.SyncPeriod,
		Log: log, Queued: report.queued, Synced: report.synced}
	if c.Mode == config.IPVS { // the kernel tells nobody who changes a virtual server or a set
		o.FullPeriod = c.SyncPeriod
	}
	return o
}

func familiesOf(list []agent.Family) (out []service.Family) {
	for _, f := range list {
		out = append(out, f.Family)
	}
	return out
}
