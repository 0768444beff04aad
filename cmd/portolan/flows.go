package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"portolan/agent"
	"portolan/config"
	"portolan/conntrack"
	kernel "portolan/kernel/conntrack"
	"portolan/metrics"
	"portolan/service"
)

// flows removes the connections that lead nowhere, after each write.
type flows map[service.Family]*conntrack.Reconciler

// newFlows returns what works for the families whose connections can be read.
func newFlows(c config.Config, families []service.Family, counts *metrics.Metrics, log *slog.Logger) flows {
	out := flows{}
	counts.WatchConnections(connectionsTracked)
	tcpReset := tcpResetSwitch(c, log)
	for _, f := range families {
		table, err := kernel.Open()
		if err != nil {
			log.Error("connections that lead nowhere will stay", "family", f, "error", err)
			continue
		}
		out[f] = conntrack.New(conntrack.Options{
			Family:     f,
			Table:      table,
			LocalAddrs: localAddresses,
			TCPReset:   tcpReset,
			Busy:       threadTime,
			Done: func(p conntrack.Pass) {
				tellPass(log, p)
				counts.Reconciled(p.Family, p.Duration, p.Removed)
			},
		})
	}
	return out
}

// threadTime is the processor time that the calling thread has had, in the kernel too.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // every Linux that this runs on has this clock
	}
	return time.Duration(t.Nano())
}

// written tells the reconciler of the family what is in force now.
func (l flows) written(r agent.Result) {
	reconciler := l[r.Family]
	if reconciler == nil || r.Err != nil {
		return
	}
	w := conntrack.Written{Snapshot: r.Snapshot, Repaired: r.Full && r.Report.Writes > 0 || !r.Report.Damage.None()}
	for text := range r.Refused {
		namespace, name, _ := strings.Cut(text, "/")
		w.Refused = append(w.Refused, service.Name{Namespace: namespace, Name: name})
	}
	reconciler.Written(w)
}

// join adds the reconcilers to what works side by side.
func (l flows) join(work *crew, log *slog.Logger) {
	work.add(func(ctx context.Context) error { return watchTable(ctx, log) })
	for _, reconciler := range l {
		work.add(func(ctx context.Context) error {
			reconciler.Run(ctx)
			return nil
		})
	}
}

// tellPass logs what one look for stale connections did.
func tellPass(log *slog.Logger, p conntrack.Pass) {
	attrs := []any{"family", p.Family, "removed", p.Removed, "read", p.Read, "full", p.Full, "took", p.Duration}
	for reason, n := range p.Reasons {
		attrs = append(attrs, reason.String(), n)
	}
	switch {
	case p.Err != nil:
		log.Error("not all connections that lead nowhere could be removed, will be tried again", append(attrs, "error", p.Err)...)
	case p.Removed > 0:
		log.Info("connections that lead nowhere removed", attrs...)
	default:
		log.Debug("no connection leads nowhere", attrs...)
	}
}

// looseTCP is the kernel value without which a removed connection is not taken up
// again, so that its client waits as it would have anyway.
const looseTCP = "proc/sys/net/netfilter/nf_conntrack_tcp_loose"

// tcpResetSwitch says whether established connections to endpoints that are gone
// are to be removed: wanted, and of use as the kernel is set now.
func tcpResetSwitch(c config.Config, log *slog.Logger) func() bool {
	if !c.Options.TCPReset {
		return func() bool { return false }
	}
	return func() bool {
		value, err := host.Read(looseTCP)
		if err == nil && value != 0 {
			return true
		}
		log.Warn("tcpReset does nothing: without this kernel value, what a client sends on a removed connection reaches nobody that would reset it",
			"file", "/"+looseTCP, "value", value, "error", err)
		return false
	}
}
