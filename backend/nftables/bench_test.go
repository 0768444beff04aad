package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// The benchmarks write to a real kernel, in a network namespace of their own.
// Beside each stands "raw": the same elements, ready as bytes, in one batch.

const elsewhere = "node2"

func benchEndpoint(i, j int) service.Endpoint {
	a := netip.AddrFrom4([4]byte{10, byte(128 + j>>7), byte(i >> 8), byte(i)})
	return service.Endpoint{Addr: netip.AddrPortFrom(a, uint16(8000+j)), Ready: true, Serving: true, Node: elsewhere}
}

func benchService(i, endpoints int) *service.Service {
	var eps []service.Endpoint
	for j := range endpoints {
		eps = append(eps, benchEndpoint(i, j))
	}
	return &service.Service{Name: service.Name{Namespace: fmt.Sprintf("team-%03d", i%100), Name: fmt.Sprintf("service-%05d", i)},
		ClusterIPs: []netip.Addr{benchAddr(i)},
		Ports:      []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, Endpoints: eps}}}
}

func benchAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}) }

func benchNode() service.Node {
	return service.Node{Name: "node1", Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
}

func benchSet(tb testing.TB, s *dataplane.Sync, b *Backend, svc *service.Service) {
	objects, err := b.Render(benchNode(), svc)
	if err != nil {
		tb.Fatal(err)
	}
	s.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
}

// benchFill renders and writes that many Services.
func benchFill(tb testing.TB, b *Backend, services, endpoints int) *dataplane.Sync {
	s := dataplane.NewSync(b)
	s.Set(dataplane.Owner{}, b.Base(benchNode()))
	for i := range services {
		benchSet(tb, s, b, benchService(i, endpoints))
	}
	apply(tb, s)
	return s
}

// cpuTime is what this process has used, the kernel on its behalf included. It
// compares better than time on a machine that does other things too.
func cpuTime(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// reportRatio compares medians.
func reportRatio(b *testing.B, ours, raw []time.Duration) {
	slices.Sort(ours)
	slices.Sort(raw)
	o, r := ours[len(ours)/2], raw[len(raw)/2]
	b.ReportMetric(0, "ns/op") // both and what is between them
	b.ReportMetric(float64(o.Microseconds())/1000, "ms")
	b.ReportMetric(float64(r.Microseconds())/1000, "raw-ms")
	b.ReportMetric(float64(o)/float64(r), "x-raw")
}

// dropTable empties the namespace between two loads.
func dropTable(tb testing.TB, b *Backend) {
	b.stop()
	batch := nft.NewBatch(b.table)
	batch.DeleteTable(0)
	if err := b.options.Conn.Commit(batch); err != nil {
		tb.Fatal(err)
	}
}

const (
	changedAt = 4711
	addedAt   = 20_000
)

// BenchmarkRestart is the first look of a proxy that finds everything in place.
func BenchmarkRestart(b *testing.B) {
	netnstest.Enter(b)
	backend := live(b, service.IPv4)
	benchFill(b, backend, 10_000, 10)
	services := make([]*service.Service, 10_000)
	for i := range services {
		services[i] = benchService(i, 10)
	}
	for b.Loop() {
		s := dataplane.NewSync(backend)
		s.Set(dataplane.Owner{}, backend.Base(benchNode()))
		for _, svc := range services {
			benchSet(b, s, backend, svc)
		}
		if r := apply(b, s); r.Writes != 0 {
			b.Fatalf("%+v", r)
		}
	}
}
