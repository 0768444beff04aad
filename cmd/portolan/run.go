package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

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

// runProxy works until ctx ends, which is no error: rules stay in place.
func runProxy(ctx context.Context, c config.Config, settings kube.Settings, log *slog.Logger) error {
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
	source := manifests.New(c.Options.Manifests, cluster)
	addresses := watchAddresses(ctx, settings, log)

	var wg sync.WaitGroup
	var watchErr, configErr error
	ctx, stop := context.WithCancel(ctx)
	wg.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("healthz server", "error", err)
		}
	})
	wg.Go(func() {
		defer stop()
		configErr = c.Watch(ctx)
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
		watchErr = nil
	}
	return errors.Join(configErr, watchErr)
}

func familiesOf(list []agent.Family) (out []service.Family) {
	for _, f := range list {
		out = append(out, f.Family)
	}
	return out
}
