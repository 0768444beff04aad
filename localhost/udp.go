package localhost

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// mostBytes is more than a datagram can have.
const mostBytes = 1 << 16

// udpListener is an open UDP Port. Each client has a socket of its own towards its
// endpoint, whose answers go back.
type udpListener struct {
	*carrier
	conn *net.UDPConn
	pick *picker

	mu      sync.Mutex
	clients map[netip.AddrPort]*udpClient
	closed  bool
}

// udpClient is one client, and the socket by which its endpoint sees it.
type udpClient struct {
	session
	client, endpoint netip.AddrPort
	far              *net.UDPConn
}

func (c *carrier) listenUDP(ctx context.Context, addr netip.AddrPort, pick *picker) (listener, error) {
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	u := &udpListener{carrier: c, conn: conn, pick: pick, clients: map[netip.AddrPort]*udpClient{}}
	go u.read(ctx) // ends with close
	return u, nil
}

// close ends all sessions: without this socket no answer can go back.
func (u *udpListener) close() {
	_ = u.conn.Close() // nothing is left to do about it
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.retain(func(*udpClient) bool { return false })
}

// retarget ends the sessions whose endpoint is none any more, so that the client's
// next datagram goes to another.
func (u *udpListener) retarget() {
	u.retain(func(c *udpClient) bool { return u.pick.has(c.endpoint) })
}

// retain ends the sessions that are not to be kept.
func (u *udpListener) retain(keep func(*udpClient) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.clients {
		if !keep(c) {
			_ = c.far.Close() // answers, which reads from it, does the rest
			delete(u.clients, c.client)
		}
	}
}

// read passes datagrams on until the socket is closed.
func (u *udpListener) read(ctx context.Context) {
	buf := make([]byte, mostBytes)
	for {
		n, from, err := u.conn.ReadFromUDPAddrPort(buf)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			u.log.Debug("a datagram to a NodePort on loopback could not be taken", "listen", u.conn.LocalAddr(), "error", err)
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		c, err := u.session(ctx, from)
		if err != nil {
			u.log.Debug("no session with an endpoint", "listen", u.conn.LocalAddr(), "error", err)
			continue
		}
		u.sessions.use(&c.session, time.Now(), false)
		_, _ = c.far.Write(buf[:n]) // an error of the datagram before; answers hears of it too
	}
}

// session returns that of a client, a new one if need be.
func (u *udpListener) session(ctx context.Context, client netip.AddrPort) (*udpClient, error) {
	u.mu.Lock()
	c := u.clients[client]
	u.mu.Unlock()
	for c == nil {
		var err error
		if c, err = u.meet(client); err != nil {
			return nil, err
		}
		if c != nil {
			u.begin(ctx, c)
		}
	}
	return c, nil
}

// meet gives a client an endpoint; none when it ceased to be one meanwhile, after
// retarget looked for its clients.
func (u *udpListener) meet(client netip.AddrPort) (*udpClient, error) {
	endpoint := u.pick.pick(time.Now())
	far, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(endpoint))
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		_ = far.Close()
		return nil, net.ErrClosed
	case !u.pick.has(endpoint):
		_ = far.Close()
		return nil, nil
	}
	c := &udpClient{client: client, endpoint: endpoint, far: far}
	c.end = func() { _ = far.Close() }
	u.clients[client] = c
	return c, nil
}

// begin has the answers of a new session carried back.
func (u *udpListener) begin(ctx context.Context, c *udpClient) {
	u.sessions.add(&c.session, time.Now())
	stop := context.AfterFunc(ctx, c.end)
	go func() {
		defer stop()
		u.answers(c)
	}()
}

// answers carries what the endpoint sends until the session ends: idle, refused by
// the endpoint, or closed by others.
func (u *udpListener) answers(c *udpClient) {
	defer func() {
		u.sessions.remove(&c.session)
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.clients[c.client] == c {
			delete(u.clients, c.client)
		}
		_ = c.far.Close()
	}()
	for {
		deadline := u.sessions.expires(&c.session)
		if !time.Now().Before(deadline) || c.far.SetReadDeadline(deadline) != nil {
			return
		}
		err := receive(c.far, func(datagram []byte) error {
			u.sessions.use(&c.session, time.Now(), true)
			_, err := u.conn.WriteToUDPAddrPort(datagram, c.client)
			return err
		})
		switch {
		case err == nil, errors.Is(err, os.ErrDeadlineExceeded): // it may have been used meanwhile
		case errors.Is(err, syscall.EMSGSIZE), errors.Is(err, syscall.EPERM): // of one answer
		default:
			return
		}
	}
}

// buffers are shared, so that a session that waits has none.
var buffers = sync.Pool{New: func() any { return new([mostBytes]byte) }}

// receive waits for a datagram and hands it to take.
func receive(conn *net.UDPConn, take func([]byte) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var taken error
	err = raw.Read(func(fd uintptr) (done bool) {
		buf := buffers.Get().(*[mostBytes]byte)
		defer buffers.Put(buf)
		n, err := syscall.Read(int(fd), buf[:])
		for errors.Is(err, syscall.EINTR) {
			n, err = syscall.Read(int(fd), buf[:])
		}
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			taken = err
		default:
			taken = take(buf[:n])
		}
		return true
	})
	return errors.Join(err, taken)
}
