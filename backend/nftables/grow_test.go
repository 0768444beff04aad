package nftables

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/service"
)

// loopback makes the namespace of the thread one where a Service can be called: its
// addresses have a route, and one endpoint is there and listens.
func loopback(tb testing.TB, endpoint netip.AddrPort) {
	tb.Helper()
	for _, args := range []string{"link set lo up", "addr add " + endpoint.Addr().String() + "/32 dev lo", "route add 10.96.0.0/12 dev lo src " + endpoint.Addr().String()} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			tb.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", endpoint.String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
}

// caller connects again and again until stop is called, in the namespace of the
// thread that starts it. It counts.
type caller struct {
	calls, refused, slow int
	err                  error // another one
	stop                 func()
}

// startCaller calls from a thread of its own.
func startCaller(to netip.AddrPort) *caller {
	c := &caller{}
	ended := make(chan struct{})
	var running sync.WaitGroup
	namespace, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		c.err = err
		c.stop = func() {}
		return c
	}
	running.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if c.err = unix.Setns(namespace, unix.CLONE_NEWNET); c.err != nil {
			return
		}
		for c.err == nil {
			select {
			case <-ended:
				return
			default:
				c.call(to)
			}
		}
	})
	c.stop = func() {
		close(ended)
		running.Wait()
		unix.Close(namespace)
	}
	return c
}

// slow is below the second after which a lost SYN is sent again, and above what a
// busy machine makes of a connection.
const slowCall = 900 * time.Millisecond

func (c *caller) call(to netip.AddrPort) {
	start := time.Now()
	conn, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
	c.calls++
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		c.refused++
		return
	case err != nil:
		c.err = err
		return
	}
	if time.Since(start) > slowCall {
		c.slow++
	}
	_ = conn.(*net.TCPConn).SetLinger(0) // no connection is left in TIME_WAIT
	conn.Close()
}

// delay has packets pass many rules of a chain before the one it has, so that they are
// often on their way while something changes.
func delay(t *testing.T, b *Backend, chain, last string) {
	batch := nft.NewBatch(b.table)
	batch.FlushChain(chain, 0)
	for i := range 2001 {
		text := b.words.ip + " daddr 192.0.2.1/32 drop"
		if i == 2000 {
			text = last
		}
		r, err := b.words.rule(chain, text)
		if err != nil {
			t.Fatal(err)
		}
		batch.AddRule(r, 0)
	}
	if err := b.options.Conn.Commit(batch); err != nil {
		t.Fatal(err)
	}
}

// TestGrowthLosesNobody: while a Service grows and shrinks through counts that no
// other has, each of which has chains and a map of its own, every connection is
// answered. Before chains were made ahead of what leads to them, some were refused
// in every run.
func TestGrowthLosesNobody(t *testing.T) {
	inNamespace(t)
	endpoint := netip.MustParseAddrPort("10.255.0.1:8080")
	loopback(t, endpoint)
	b := live(t, service.IPv4)
	sync := dataplane.NewSync(b)
	sync.Set(dataplane.Owner{}, b.Base(benchNode()))
	with := func(n int) *service.Service {
		s := benchService(1, n)
		for i := range s.Ports[0].Endpoints {
			s.Ports[0].Endpoints[i].Addr = endpoint
		}
		return s
	}
	benchSet(t, sync, b, with(1))
	apply(t, sync)
	delay(t, b, "nat-output", "jump "+services)
	var callers []*caller
	for range 3 {
		callers = append(callers, startCaller(netip.AddrPortFrom(benchAddr(1), 80)))
	}
	changes := 0
	for until := time.Now().Add(3 * time.Second); time.Now().Before(until); {
		for n := 2; n <= 300; n++ {
			benchSet(t, sync, b, with(n))
			apply(t, sync)
			changes++
		}
		benchSet(t, sync, b, with(1))
		apply(t, sync)
		time.Sleep(removeAfter)

		settle(t, b)
	}
	for _, c := range callers {
	c.stop()
	t.Logf("%d changes, %d connections, %d refused, %d slow", changes, c.calls, c.refused, c.slow)
	if c.refused+c.slow > 0 || c.err != nil {
		t.Errorf("%d of %d connections refused, %d slow: %v", c.refused, c.calls, c.slow, c.err)
	}
	}
}

