package nftables

import (
	"context"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// stickyService is a Service of benchService with affinity.
func stickyService(i, endpoints int) *service.Service {
	s := benchService(i, endpoints)
	s.AffinityTimeout = 3 * time.Hour
	return s
}

// rememberMany fills the map of clients, of 2,000 Services.
func rememberMany(tb testing.TB, b *Backend, first, n int) {
	batch := nft.NewBatch(b.table)
	for i := range n {
		client := netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)})
		id := numberOf(tb, b.ids, scopeName(20_000+i%2000))
		set, e := clientElement(b, id, client, benchEndpoint(first+i%2000, i%9).Addr)
		batch.AddElement(set, e, 0)
	}
	if err := b.options.Conn.Commit(batch); err != nil {
		tb.Fatal(err)
	}
}

func scopeName(i int) string {
	s := benchService(i, 0)
	return s.PortName(s.Ports[0]).String() + " learn-10800"
}

// BenchmarkStorm is one change of many in a row, each of another Service, growing
// or shrinking by an endpoint, with the removal of what it leaves.
func BenchmarkStorm(b *testing.B) {
	netnstest.Enter(b)
	backend := live(b, service.IPv4)
	sync := benchFill(b, backend, 10_000, 10)
	grown := map[int]bool{}
	start := cpuTime(b)
	i := 0
	for b.Loop() {
		i = (i + 37) % 10_000
		grown[i] = !grown[i]
		n := 10
		if grown[i] {
			n = 11
		}
		benchSet(b, sync, backend, benchService(i, n))
		apply(b, sync)
		settle(b, backend)
	}
	b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(b.N), "cpu-us/op")
}

// BenchmarkDeleteAll removes 250,300 endpoints with their Services.
func BenchmarkDeleteAll(b *testing.B) {
	netnstest.Enter(b)
	backend := live(b, service.IPv4)
	for b.Loop() {
		b.StopTimer()
		sync := benchFill(b, backend, 5_006, 50)
		for i := range 5_006 {
			sync.Remove(benchService(i, 0).Name.String())
		}
		b.StartTimer()
		apply(b, sync)
		settle(b, backend)
	}
}

// BenchmarkConnect compares TCP connects to an endpoint and to Services with it,
// all over the loopback of one namespace.
func BenchmarkConnect(b *testing.B) {
	netnstest.Enter(b)
	for _, args := range []string{"link set lo up", "addr add 10.255.0.1/32 dev lo", "route add 10.96.0.0/12 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			b.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	backend := live(b, service.IPv4)
	sync := benchFill(b, backend, 10_000, 10)
	here := func(i, endpoints int) *service.Service {
		s := benchService(i, endpoints)
		for j := range s.Ports[0].Endpoints {
			s.Ports[0].Endpoints[j].Addr = netip.MustParseAddrPort("10.255.0.1:8080")
		}
		return s
	}
	for _, s := range []*service.Service{here(0, 10), here(9_999, 10), here(5_000, 1_000)} {
		benchSet(b, sync, backend, s)
	}
	apply(b, sync)
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", "10.255.0.1:8080")
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	for _, place := range []struct{ name, addr string }{
		{"direct", "10.255.0.1:8080"}, {"first", benchAddr(0).String() + ":80"}, {"last", benchAddr(9_999).String() + ":80"},
		{"1000-endpoints", benchAddr(5_000).String() + ":80"},
	} {
		b.Run(place.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				conn, err := net.Dial("tcp", place.addr)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				_ = conn.(*net.TCPConn).SetLinger(0) // no connection is left in TIME_WAIT
				conn.Close()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/10].Nanoseconds()), "p10-ns")
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "median-ns")
		})
	}
}
