package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"syscall"

	"portolan/config"
	"portolan/healthcheck"
)

// crew runs what works side by side until one of them is done, whatever it says.
type crew struct {
	ctx  context.Context // ends when one is done
	stop context.CancelFunc
	wg   sync.WaitGroup

	servers     context.Context // ends last
	stopServers context.CancelFunc
	serving     sync.WaitGroup

	mu   sync.Mutex
	errs []error
}

func newCrew(ctx context.Context) *crew {
	c := &crew{}
	c.servers, c.stopServers = context.WithCancel(context.WithoutCancel(ctx))
	c.ctx, c.stop = context.WithCancel(ctx)
	return c
}

// add runs work until it returns, which ends all others.
func (c *crew) add(work func(context.Context) error) {
	c.wg.Go(func() {
		defer c.stop()
		c.note(work(c.ctx))
	})
}

func (c *crew) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// end waits for all, the servers last.
func (c *crew) end() error {
	c.stop()
	c.wg.Wait()
	c.stopServers()
	c.serving.Wait()
	return errors.Join(c.errs...)
}

// servers are what is answered where.
type servers struct{ health, metrics http.Handler }

// serve starts the servers that the configuration asks for. One that cannot
// listen is tried again, or ends all.
func (c *crew) serve(conf config.Config, s servers, log *slog.Logger) {
	for _, server := range []healthcheck.Server{
		{Name: "healthz server", Address: conf.HealthzBindAddress, Handler: s.health},
		{Name: "metrics server", Address: conf.MetricsBindAddress, Handler: s.metrics},
	} {
		if server.Address == "" {
			continue
		}
		server.HardFail = conf.BindAddressHardFail
		server.Trouble = func(err error) { log.Error("will try again to listen", "error", withRival(err)) }
		c.serving.Go(func() {
			if err := server.Serve(c.servers); err != nil {
				c.note(withRival(err))
				c.stop()
			}
		})
	}
}

// withRival says what an address that is taken may mean.
func withRival(err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	return fmt.Errorf("%w: another process has it; if that is kube-proxy or another Portolan, end it, as only one Service proxy may run on a node", err)
}
