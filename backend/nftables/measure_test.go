package nftables

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/service"
)

// stickyService is a Service of benchService with affinity.
func stickyService(i, endpoints int) *service.Service {
	s := benchService(i, endpoints)
	s.AffinityTimeout = 3 * time.Hour
	return s
}

// BenchmarkPlainBesideAffinity: what a change of a Service without affinity costs
// beside many that have it.
func BenchmarkPlainBesideAffinity(b *testing.B) {
	for _, affine := range []int{0, 2_000} {
		b.Run(fmt.Sprint(affine), func(b *testing.B) {
			inNamespace(b)
			backend := live(b, service.IPv4)
			sync := benchFill(b, backend, 10_000, 10)
			for i := range affine {
				benchSet(b, sync, backend, stickyService(20_000+i, 10))
			}
			apply(b, sync)
			for name, other := range map[string]*service.Service{"replace": benchService(changedAt, 10), "grow": benchService(changedAt, 11)} {
				other.Ports[0].Endpoints[9].Addr = netip.MustParseAddrPort("10.255.0.1:8009")
				b.Run(name, func(b *testing.B) { thereAndBack(b, backend, sync, other, benchService(changedAt, 10)) })
			}
			if affine > 0 {
				other := stickyService(20_001, 10)
				other.Ports[0].Endpoints[9].Addr = netip.MustParseAddrPort("10.255.0.1:8009")
				b.Run("replace-of-affine", func(b *testing.B) { thereAndBack(b, backend, sync, other, stickyService(20_001, 10)) })
				rememberMany(b, backend, 100_000)
				b.Run("replace-of-affine-100k-clients", func(b *testing.B) { thereAndBack(b, backend, sync, other, stickyService(20_001, 10)) })
			}
		})
	}
}

func thereAndBack(b *testing.B, backend *Backend, sync *dataplane.Sync, odd, even *service.Service) {
	round := 0
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if round++; round%2 == 1 {
			benchSet(b, sync, backend, odd)
		} else {
			benchSet(b, sync, backend, even)
		}
		apply(b, sync)
		took = append(took, time.Since(start))
		b.StopTimer()
		settle(b, backend)
		b.StartTimer()
	}
	reportMedian(b, took)
	benchSet(b, sync, backend, even)
	apply(b, sync)
	settle(b, backend)
}

// rememberMany fills the map of clients.
func rememberMany(tb testing.TB, b *Backend, n int) {
	batch := nft.NewBatch(b.table)
	for i := range n {
		key := []byte{172, byte(16 + i>>16), byte(i >> 8), byte(i), 6, 0, 0, 0}
		e := benchEndpoint(20_000+i%2000, i%9)
		data, err := b.words.parseKey(nil, []part{address, port}, fmt.Sprintf("%s . %d", e.Addr.Addr(), e.Addr.Port()))
		if err != nil {
			tb.Fatal(err)
		}
		id := b.ids.of(scopeName(20_000 + i%2000))
		batch.AddElement(affinity, nft.Element{Key: append(key, host(id)...), Data: data}, 0)
	}
	if err := b.options.Conn.Commit(batch); err != nil {
		tb.Fatal(err)
	}
}

func scopeName(i int) string {
	s := benchService(i, 0)
	return s.PortName(s.Ports[0]).String()
}

// BenchmarkStorm is one change of many in a row, each of another Service, growing
// or shrinking by an endpoint, with the removal of what it leaves.
func BenchmarkStorm(b *testing.B) {
	inNamespace(b)
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

// BenchmarkGrow is one Service from 1 endpoint to 200, one at a time.
func BenchmarkGrow(b *testing.B) {
	inNamespace(b)
	backend := live(b, service.IPv4)
	sync := benchFill(b, backend, 10_000, 10)
	for b.Loop() {
		for n := 1; n <= 200; n++ {
			benchSet(b, sync, backend, benchService(changedAt, n))
			apply(b, sync)
		}
		settle(b, backend)
	}
}

// BenchmarkDeleteAll removes 250,300 endpoints with their Services.
func BenchmarkDeleteAll(b *testing.B) {
	inNamespace(b)
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
	inNamespace(b)
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
