package nftables

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"portolan/bench/figures"
	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// benchWorkload is a number of Services.
type benchWorkload struct {
	name     string
	services int
	make     func(i int) *service.Service
}

// benchWorkloads are plain ClusterIPs and the mix of docs/performance.md, in which the
// larger sizes have as many endpoints each as their name says.
func benchWorkloads() (out []benchWorkload) {
	for _, size := range []struct {
		services, endpoints int
		dealt               bool // the mix has endpoint counts of its own
	}{{5_000, 10, true}, {10_000, 10, true}, {45_000, 1, false}, {5_006, 50, false}} {
		name := fmt.Sprintf("%dx%d", size.services, size.endpoints)
		out = append(out, benchWorkload{"plain/" + name, size.services, func(i int) *service.Service {
			return benchService(i, size.endpoints)
		}})
		if size.dealt {
			name = fmt.Sprint(size.services)
		}
		out = append(out, benchWorkload{"mix/" + name, size.services, func(i int) *service.Service {
			if size.dealt {
				return benchMixed(i, figures.MixEndpoints(i))
			}
			return benchMixed(i, size.endpoints)
		}})
	}
	return out
}

// benchMixed deals out kinds: of 20 Services 4 are NodePort, 2 LoadBalancer with
// policy Local, and 1 each has affinity, source ranges and UDP. Every fourth endpoint
// is on this node.
func benchMixed(i, endpoints int) *service.Service {
	s := benchService(i, endpoints)
	for j := 0; j < endpoints; j += 4 {
		s.Ports[0].Endpoints[j].Node = benchNode().Name
	}
	balanced := []netip.Addr{netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)})}
	switch i % 20 {
	case 0, 5, 10, 15:
		s.Ports[0].NodePort = uint16(20_000 + i) // more than a cluster has, in a row
	case 2, 12:
		s.LoadBalancerIPs, s.ExternalPolicy = balanced, service.Local
	case 7:
		s.AffinityTimeout = 3 * time.Hour
	case 9:
		s.LoadBalancerIPs = balanced
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("203.0.113.0/24")}
	case 17:
		s.Ports[0].Protocol = service.UDP
	}
	return s
}

// BenchmarkLoad is a first start: all Services rendered, compared with an empty
// kernel, and written; and the same elements in one batch. They take turns, so that
// both meet the same machine.
func BenchmarkLoad(b *testing.B) {
	for _, w := range benchWorkloads() {
		b.Run(w.name, func(b *testing.B) {
			netnstest.Enter(b)
			services := make([]*service.Service, w.services)
			for i := range services {
				services[i] = w.make(i)
			}
			backend, raw := live(b, service.IPv4), newRawKernel(b)
			var ours, theirs []time.Duration
			for b.Loop() {
				runtime.GC()
				start := time.Now()
				benchLoad(b, backend, backend, services)
				ours = append(ours, time.Since(start))
				b.StopTimer()
				dropTable(b, backend)
				benchLoad(b, raw, raw.b, services)
				runtime.GC()
				start = time.Now()
				raw.commit(b, raw.now)
				theirs = append(theirs, time.Since(start))
				dropTable(b, raw.b)
				clear(raw.made)
				b.StartTimer()
			}
			b.ReportMetric(float64(len(raw.now)), "elements")
			reportRatio(b, ours, theirs)
		})
	}
}

// benchLoad renders on all processors, and takes what is rendered while the rest is, as
// the agent does.
func benchLoad(tb testing.TB, k dataplane.Kernel, renderer *Backend, services []*service.Service) {
	s := dataplane.NewSync(k)
	s.Set(dataplane.Owner{}, renderer.Base(benchNode()))
	parts := slices.Collect(slices.Chunk(services, 64))
	done := make([][][]dataplane.Object, len(parts))
	rendered := make(chan int, len(parts))
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for i := int(next.Add(1)) - 1; i < len(parts); i = int(next.Add(1)) - 1 {
				for _, svc := range parts[i] {
					objects, err := renderer.Render(benchNode(), svc)
					if err != nil {
						tb.Error(err)
					}
					done[i] = append(done[i], objects)
				}
				rendered <- i
			}
		}()
	}
	for range parts {
		i := <-rendered
		for j, svc := range parts[i] {
			s.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, done[i][j])
		}
		done[i] = nil
	}
	apply(tb, s)
}
