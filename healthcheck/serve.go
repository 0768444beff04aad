package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// bindRetry is the pause before another try to listen, as in kube-proxy.
const bindRetry = 5 * time.Second

// Server is an HTTP server whose address may be taken when it starts.
type Server struct {
	Name    string // for errors
	Address string // IP:port; an unspecified IPv4 address listens on IPv6 too
	Handler http.Handler
	// HardFail makes an address that cannot be listened on an error at once.
	HardFail bool
	// Trouble hears of addresses that cannot be listened on, before another try.
	Trouble func(error)

	retry time.Duration // bindRetry when zero
}

// Serve answers until ctx ends, which is no error. Requests that are being
// answered then are cut off.
func (s Server) Serve(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if listener == nil {
		return err
	}
	server := &http.Server{Handler: loud(s.Handler), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // nothing is left to do about it
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", s.Name, err)
	}
	return nil
}

// listen tries until it listens, or ctx ends: then there is neither a listener nor
// an error.
func (s Server) listen(ctx context.Context) (net.Listener, error) {
	pause := s.retry
	if pause == 0 {
		pause = bindRetry
	}
	for {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
		switch {
		case err == nil:
			return listener, nil
		case ctx.Err() != nil:
			return nil, nil
		case s.HardFail:
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		s.Trouble(fmt.Errorf("%s: %w", s.Name, err))
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(pause):
		}
	}
}
