package nftables

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/internal/netnstest"
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

// startCallers calls from some threads in the namespace of this one, again and
// again, until stop is called, which returns how often that was and what went wrong.
func startCallers(tb testing.TB, threads int, call func() error) (stop func() (calls int, err error)) {
	namespace, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	var running sync.WaitGroup
	calls, errs := make([]int, threads), make([]error, threads)
	for i := range threads {
		running.Go(func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
			errs[i] = unix.Setns(namespace, unix.CLONE_NEWNET)
			for errs[i] == nil {
				select {
				case <-ended:
					return
				default:
					errs[i] = call()
					calls[i]++
				}
			}
		})
	}
	return func() (sum int, err error) {
		close(ended)
		running.Wait()
		unix.Close(namespace)
		for _, n := range calls {
			sum += n
		}
		return sum, errors.Join(errs...)
	}
}

func connect(to netip.AddrPort) error {
	conn, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
	if err != nil {
		return err
	}
	_ = conn.(*net.TCPConn).SetLinger(0) // no connection is left in TIME_WAIT
	return conn.Close()
}

// stretch has packets of this node pass many rules before they come to Services, so
// that they are often on their way while something changes, and counts behind that
// those for which there was no Service.
func stretch(t *testing.T, b *Backend) {
	const chain = "nat-output"
	batch := nft.NewBatch(b.table)
	batch.FlushChain(chain, 0)
	rules := slices.Repeat([]string{b.words.ip + " daddr 192.0.2.1/32 drop"}, 2000)
	for _, text := range append(rules, "jump "+services, b.words.ip+" daddr 10.96.0.0/12 counter") {
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

var counts = regexp.MustCompile(`counter packets (\d+)`)

// TestGrowthLosesNobody: while a Service grows through counts that no other has, each of
// which has chains and a map of its own, every connection is translated. A packet that
// sees the rules of before and the elements of after must find the chain full that
// they lead to: so it has to be there before.
func TestGrowthLosesNobody(t *testing.T) {
	netnstest.Enter(t)
	endpoint := netip.MustParseAddrPort("10.255.0.1:8080")
	loopback(t, endpoint)
	b := live(t, service.IPv4)
	sync := dataplane.NewSync(b)
	sync.Set(dataplane.Owner{}, b.Base(benchNode()))
	growTo := func(n int) {
		s := benchService(1, n)
		for i := range s.Ports[0].Endpoints {
			s.Ports[0].Endpoints[i].Addr = endpoint
		}
		benchSet(t, sync, b, s)
		apply(t, sync)
	}
	growTo(1)
	stretch(t, b)
	to := netip.AddrPortFrom(benchAddr(1), 80)
	stop := startCallers(t, 3, func() error { return connect(to) })
	for n := 2; n <= 600; n++ {
		growTo(n)
	}
	calls, err := stop()
	if calls == 0 || err != nil {
		t.Errorf("%d connections: %v", calls, err)
	}
	text, err := exec.Command("nft", "list", "table", "ip", TableName).CombinedOutput()
	if err != nil {
		t.Fatalf("nft list: %v: %s", err, text)
	}
	found := counts.FindAllSubmatch(text, -1)
	if len(found) < 2 {
		t.Errorf("%d counters in\n%s", len(found), text)
	}
	for _, count := range found {
		if string(count[1]) != "0" {
			t.Errorf("of %d connections some were not translated, or lost: %s", calls, count[0])
		}
	}
}
