package nftables

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"portolan/bench/figures"
	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// benchCluster is 10,000 Services in the kernel, once by the Backend and once raw, in
// a namespace each.
type benchCluster struct {
	backend      *Backend
	raw          *rawKernel
	ours, theirs *dataplane.Sync
	make         func(i int) *service.Service
}

func newBenchCluster(b *testing.B, make func(i int) *service.Service, services int) *benchCluster {
	netnstest.Enter(b)
	c := &benchCluster{backend: live(b, service.IPv4), make: make}
	netnstest.Enter(b)
	c.raw = newRawKernel(b)
	c.ours, c.theirs = dataplane.NewSync(c.backend), dataplane.NewSync(c.raw)
	for _, s := range []*dataplane.Sync{c.ours, c.theirs} {
		s.Set(dataplane.Owner{}, c.backend.Base(benchNode()))
		for i := range services {
			benchSet(b, s, c.backend, make(i))
		}
		apply(b, s)
		s.Prepare()
	}
	c.raw.commit(b, c.raw.now)
	return c
}

// benchStep has the Service of a name as given, or go where it is nil.
type benchStep struct {
	name service.Name
	svc  *service.Service
}

func stepTo(s *service.Service) benchStep { return benchStep{s.Name, s} }

func (c *benchCluster) set(b *testing.B, s *dataplane.Sync, step benchStep) {
	if step.svc == nil {
		s.Remove(step.name.String())
		return
	}
	benchSet(b, s, c.backend, step.svc)
}

// rawStep is a benchStep as bytes.
type rawStep struct{ now, later []rawElement }

func (c *benchCluster) prepare(b *testing.B, step benchStep) rawStep {
	c.set(b, c.theirs, step)
	apply(b, c.theirs)
	out := rawStep{c.raw.now, c.raw.later}
	c.commit(b, out)
	return out
}

func (c *benchCluster) commit(b *testing.B, s rawStep) (took time.Duration) {
	start := time.Now()
	c.raw.commit(b, s.now)
	took = time.Since(start)
	c.raw.commit(b, s.later)
	return took
}

// run goes through the steps again and again, of which the last leads back to the
// start. What a step costs is from the Service to the return of the kernel; what is
// removed later is not in it.
func (c *benchCluster) run(b *testing.B, name string, steps ...benchStep) {
	b.Run(name, func(b *testing.B) {
		var raw []rawStep
		for _, s := range steps {
			raw = append(raw, c.prepare(b, s))
		}
		var ours, theirs []time.Duration
		for b.Loop() {
			for i, s := range steps {
				start := time.Now()
				c.set(b, c.ours, s)
				apply(b, c.ours)
				ours = append(ours, time.Since(start))
				settle(b, c.backend)
				theirs = append(theirs, c.commit(b, raw[i]))
			}
		}
		reportRatio(b, ours, theirs)
	})
}

// moved has another last endpoint.
func moved(s *service.Service) *service.Service {
	list := s.Ports[0].Endpoints
	list[len(list)-1].Addr = netip.MustParseAddrPort("10.255.0.1:8009")
	return s
}

// BenchmarkChange is one change in a cluster of 10,000 Services, plain ones with 10
// endpoints each, or the mix.
func BenchmarkChange(b *testing.B) {
	plain := func(i int) *service.Service { return benchService(i, 10) }
	mixed := func(i int) *service.Service { return benchMixed(i, figures.MixEndpoints(i)) }
	for _, w := range []struct {
		name string
		make func(int) *service.Service
	}{{"plain", plain}, {"mix", mixed}} {
		b.Run(w.name, func(b *testing.B) {
			c := newBenchCluster(b, w.make, 10_000)
			// The changed Services are plain ones in both.
			apply(b, c.withPlain(b))
			grown := []benchStep{}
			for n := 1; n <= 200; n++ {
				grown = append(grown, stepTo(benchService(changedAt, n)))
			}
			added := benchService(addedAt, 10)
			c.run(b, "replace-endpoint", stepTo(moved(plain(changedAt))), stepTo(plain(changedAt)))
			c.run(b, "endpoint-more-or-less", stepTo(benchService(changedAt, 11)), stepTo(plain(changedAt)))
			c.run(b, "service-more-or-less", stepTo(added), benchStep{name: added.Name})
			c.run(b, "grow-1-to-200", append(grown, stepTo(plain(changedAt)))...)
		})
	}
}

// withPlain has the Service that changes be a plain one.
func (c *benchCluster) withPlain(b *testing.B) *dataplane.Sync {
	c.prepare(b, stepTo(benchService(changedAt, 10)))
	benchSet(b, c.ours, c.backend, benchService(changedAt, 10))
	return c.ours
}

// BenchmarkPlainBesideAffinity is what a change of a Service without affinity costs
// beside many that have it; with the figure of none of these first.
func BenchmarkPlainBesideAffinity(b *testing.B) {
	for _, affine := range []int{0, 2_000} {
		b.Run(fmt.Sprint(affine), func(b *testing.B) {
			c := newBenchCluster(b, func(i int) *service.Service {
				if i >= 10_000 {
					return stickyService(i, 10)
				}
				return benchService(i, 10)
			}, 10_000+affine)
			plain := benchService(changedAt, 10)
			c.run(b, "replace-endpoint", stepTo(moved(benchService(changedAt, 10))), stepTo(plain))
			c.run(b, "endpoint-more-or-less", stepTo(benchService(changedAt, 11)), stepTo(plain))
			if affine == 0 {
				return
			}
			sticky := stickyService(10_001, 10)
			c.run(b, "replace-of-affine", stepTo(moved(stickyService(10_001, 10))), stepTo(sticky))
			rememberMany(b, c.backend, 10_000, 100_000)
			c.run(b, "replace-of-affine-100k-clients", stepTo(moved(stickyService(10_001, 10))), stepTo(sticky))
		})
	}
}
