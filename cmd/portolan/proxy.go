package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"portolan/agent"
	"portolan/config"
	"portolan/healthcheck"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
)

const (
	retryMin   = time.Second
	fullPeriod = time.Hour // as kube-proxy; changes by others are noticed apart from it
)

func newProxyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Program Services on this node, and keep them so",
		Long: `Watches Services, EndpointSlices and Nodes, and has the kernel of this node
answer for them. Rules stay in place when it ends: the next start adopts them.
Needs root.`,
		Example: `  portolan proxy --manifests /etc/portolan --cluster-cidr 10.244.0.0/16`,
		Args:    cobra.NoArgs,
	}
	flags := addNodeFlags(cmd.Flags())
	verbosity := cmd.Flags().IntP("v", "v", 0, "log verbosity; from 4 on every sync is told, with or without a write")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.config.Auto = modeOfTables()
		c, warnings, err := flags.config.Config(false)
		if err != nil {
			return err
		}
		level := slog.LevelInfo
		if *verbosity >= 4 {
			level = slog.LevelDebug
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
		for _, w := range warnings {
			log.Warn("configuration", "warning", w)
		}
		settings, err := flags.settings(c)
		if err != nil {
			return err
		}
		return runProxy(cmd.Context(), c, settings, flags.manifests, log)
	}
	return cmd
}

// runProxy works until ctx ends, which is no error: rules stay in place.
func runProxy(ctx context.Context, c config.Config, settings kube.Settings, paths []string, log *slog.Logger) error {
	if os.Geteuid() != 0 {
		return errors.New("proxy: to program the kernel needs root")
	}
	settings.NodePorts.Localhost = settings.NodePorts.AllowsLocalhost() && allowLocalhostNodePorts(log)
	warnAboutForwarding(log)
	families, large, err := newBackends(ctx, c, log)
	if err != nil {
		return err
	}
	health := healthcheck.NewHealth(2*c.SyncPeriod, familiesOf(families))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.HealthzBindAddress)
	if err != nil {
		return fmt.Errorf("healthz server: %w", err)
	}
	server := &http.Server{Handler: health.Handler(), ReadHeaderTimeout: 10 * time.Second}
	ports := newNodePortHealth(ctx, health, families, log)
	defer ports.close()
	a := agent.New(families, agent.Options{
		MinSyncPeriod: c.MinSyncPeriod,
		FullPeriod:    fullPeriod,
		RetryMin:      retryMin,
		RetryMax:      c.SyncPeriod,
		Log:           log,
		Queued:        health.Queued,
		Synced: func(r agent.Result) {
			if r.Err == nil {
				health.Updated(r.Family)
			}
			ports.update(r)
		},
	})
	cluster := kube.NewCluster(settings)
	if large {
		cluster.StartLarge()
	}
	source := manifests.New(paths, cluster)
	addresses := watchAddresses(ctx, settings, log)

	var wg sync.WaitGroup
	var watchErr error
	ctx, stop := context.WithCancel(ctx)
	wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("healthz server", "error", err)
		}
	})
	wg.Go(func() {
		defer stop()
		report := newProblemLog(log)
		watchErr = source.Watch(ctx, addresses, func(s *service.Snapshot, problems []manifests.Problem) {
			report(problems)
			if s != nil {
				health.SetEligible(!s.Node.Leaving)
				a.Publish(s)
			}
		})
	})
	a.Run(ctx)
	_ = server.Close() // nothing is left to do about it
	wg.Wait()
	if errors.Is(watchErr, context.Canceled) {
		return nil
	}
	return watchErr
}

func familiesOf(list []agent.Family) (out []service.Family) {
	for _, f := range list {
		out = append(out, f.Family)
	}
	return out
}

// newProblemLog returns a function that logs problems when they come, once.
func newProblemLog(log *slog.Logger) func([]manifests.Problem) {
	known := map[string]bool{}
	return func(problems []manifests.Problem) {
		now := map[string]bool{}
		for _, p := range problems {
			text := p.Error()
			now[text] = true
			if known[text] {
				continue
			}
			if p.Warning {
				log.Warn("manifest", "warning", text)
			} else {
				log.Error("manifest refused", "error", text)
			}
		}
		known = now
	}
}
