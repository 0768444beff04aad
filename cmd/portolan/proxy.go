package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

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

// warnAboutForwarding says what an operator finds out late: without forwarding
// the kernel drops what the rules send to pods.
func warnAboutForwarding(log *slog.Logger) {
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
		if now, err := os.ReadFile("/proc/sys/" + name); err == nil && len(now) > 0 && now[0] == '0' {
			log.Warn("the kernel does not forward packets, so Services do not answer but from this node; set it to 1", "sysctl", strings.ReplaceAll(name, "/", "."))
		}
	}
}

const routeLocalnet = "/proc/sys/net/ipv4/conf/all/route_localnet"

// allowLocalhostNodePorts lets the kernel route what is sent to a NodePort on
// 127.0.0.1, as kube-proxy does. Where that cannot be set, NodePorts do not answer
// on loopback, and everything else works.
func allowLocalhostNodePorts(log *slog.Logger) bool {
	if now, err := os.ReadFile(routeLocalnet); err == nil && len(now) > 0 && now[0] == '1' {
		return true
	}
	if err := os.WriteFile(routeLocalnet, []byte("1"), 0); err != nil {
		log.Warn("NodePorts will not answer on 127.0.0.1", "error", err)
		return false
	}
	return true
}

// watchAddresses tells when the addresses of this node's interfaces change,
// where NodePorts depend on them. When the kernel's messages are lost, it
// subscribes anew and looks again.
func watchAddresses(ctx context.Context, s kube.Settings, log *slog.Logger) <-chan func(*kube.Settings) {
	if len(s.NodePorts.Prefixes) == 0 && !s.NodePortsPrimary {
		return nil
	}
	out := make(chan func(*kube.Settings))
	go func() {
		last := s.NodePorts.Local
		look := func() {
			now, err := localAddresses()
			if err != nil || slices.Equal(now, last) {
				return
			}
			last = now
			select {
			case out <- func(s *kube.Settings) { s.NodePorts.Local = now }:
			case <-ctx.Done():
			}
		}
		for ctx.Err() == nil {
			updates := make(chan netlink.AddrUpdate)
			if err := netlink.AddrSubscribe(updates, ctx.Done()); err != nil {
				log.Error("addresses of this node are not watched", "error", err)
			} else {
				look() // what changed before the subscription
				for range updates {
					look()
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(retryMin):
			}
		}
	}()
	return out
}

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
