package localhost

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"portolan/service"
)

// dialTimeout is how long an endpoint has to take a connection (kube-proxy 1.37).
const dialTimeout = 5 * time.Second

// The pause after a connection could not be taken, mostly for want of file
// descriptors; it doubles up to the most.
const (
	acceptPause     = 5 * time.Millisecond
	mostAcceptPause = time.Second
)

// carrier opens Ports with real sockets. Connections live until ctx of listen ends.
type carrier struct {
	log      *slog.Logger
	sessions *sessions
}

func (c *carrier) listen(ctx context.Context, p Port, pick *picker) (listener, error) {
	if p.Protocol == service.UDP {
		return c.listenUDP(ctx, p.Addr, pick)
	}
	return c.listenTCP(ctx, p.Addr, pick)
}

// tcpListener is a listening port whose connections go where pick says.
type tcpListener struct {
	*carrier
	*net.TCPListener
	pick *picker
}

func (c *carrier) listenTCP(ctx context.Context, addr netip.AddrPort, pick *picker) (listener, error) {
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	t := &tcpListener{c, l, pick}
	go t.accept(ctx) // ends with close
	return t, nil
}

func (t *tcpListener) close() { _ = t.Close() } // nothing is left to do about it

// retarget changes nothing about connections that are open.
func (t *tcpListener) retarget() {}

// accept takes connections until the listener is closed. After an error, such as too many
// open files, it waits ever longer.
func (t *tcpListener) accept(ctx context.Context) {
	pause := acceptPause
	for {
		conn, err := t.AcceptTCP()
		switch {
		case err == nil:
			pause = acceptPause
			go t.forward(ctx, conn)
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		t.log.Error("a connection to a NodePort on loopback could not be taken", "listen", t.Addr(), "error", err)
		time.Sleep(pause)
		pause = min(2*pause, mostAcceptPause)
	}
}

// forward carries one connection until both sides are done or ctx ends. A caller
// whose endpoint does not answer gets a reset.
func (t *tcpListener) forward(ctx context.Context, near *net.TCPConn) {
	endpoint := t.pick.pick(time.Now())
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", endpoint.String())
	if err != nil {
		t.log.Debug("an endpoint does not answer", "listen", t.Addr(), "endpoint", endpoint, "error", err)
		reset(near)
		return
	}
	far := conn.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() {
		reset(near)
		reset(far)
	})
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { carry(far, near) })
	both.Go(func() { carry(near, far) })
	both.Wait()
	_ = near.Close()
	_ = far.Close()
}

// carry copies until the end, which it hands on: half a connection that ends leaves
// the other half open, and a reset resets.
func carry(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		reset(to)
		reset(from)
		return
	}
	_ = to.CloseWrite() // it may be closed already
	_ = from.CloseRead()
}

// reset closes without waiting for what was sent to be taken.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails only when it is closed
	_ = c.Close()
}
