package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
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

// rawTable writes the layout of the Backend without it.
type rawTable struct {
	b     *Backend
	batch *nft.Batch
}

func newRaw(tb testing.TB, counts ...int) *rawTable {
	r := &rawTable{b: live(tb, service.IPv4)}
	// Chains and sets are not what is compared: the Backend makes them.
	s := dataplane.NewSync(r.b)
	s.Set(dataplane.Owner{}, r.b.Base(benchNode()))
	for i, n := range counts {
		what := r.b.chainsOf(balancer{n: n, masquerade: outsiders, pods: r.b.podMatch(benchNode())})
		s.Set(dataplane.Owner{Name: fmt.Sprint(i)}, append(slices.Clone(what.chains), what.sets...))
	}
	apply(tb, s)
	r.batch = nft.NewBatch(r.b.table)
	return r
}

func (r *rawTable) commit(tb testing.TB) {
	if err := r.b.options.Conn.Commit(r.batch); err != nil {
		tb.Fatal(err)
	}
	r.batch.Reset()
}

// rawService is the elements of one Service as bytes.
type rawService struct {
	ip, dispatch nft.Element
	slots        []nft.Element
}

func rawOf(tb testing.TB, b *Backend, svc *service.Service) (out rawService) {
	objects, err := b.Render(benchNode(), svc)
	if err != nil {
		tb.Fatal(err)
	}
	for _, o := range objects {
		if o.Key.Container != frontends && o.Key.Container != "set/"+clusterIPs {
			continue
		}
		for a := range atoms(o.Key.Container, o.Key.Name, o.Body) {
			s, _ := shapeOf(a.set)
			list, err := (&reader{b: b}).elementsOf(a.set, s, o.Key.Name, a.data)
			if err != nil {
				tb.Fatal(err)
			}
			switch {
			case s.isSlots():
				out.slots = list
			case a.set == serviceIPs:
				out.dispatch = list[0]
			case a.set == clusterIPs:
				out.ip = list[0]
			}
		}
	}
	return out
}

func (r *rawTable) add(s rawService) {
	set := slotMap + fmt.Sprint(len(s.slots))
	for _, e := range s.slots {
		r.batch.AddElement(set, e, 0)
	}
}

func (r *rawTable) serve(list []rawService) {
	for _, s := range list {
		r.batch.AddElement(clusterIPs, s.ip, 0)
	}
	for _, s := range list {
		r.batch.AddElement(serviceIPs, s.dispatch, 0)
	}
}

func (r *rawTable) load(tb testing.TB, list []rawService) {
	for _, s := range list {
		r.add(s)
	}
	r.serve(list)
	r.commit(tb)
}

func rawServices(tb testing.TB, services, endpoints int) []rawService {
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14})
	list := make([]rawService, services)
	for i := range list {
		list[i] = rawOf(tb, b, benchService(i, endpoints))
	}
	return list
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

// reportMedian says what a change takes when nobody interferes.
func reportMedian(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "median-ns")
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

// BenchmarkLoad is a first start: all Services rendered, compared with an empty
// kernel, and written.
func BenchmarkLoad(b *testing.B) {
	for _, size := range [][2]int{{5_000, 10}, {10_000, 10}, {45_000, 1}, {5_006, 50}} {
		name := fmt.Sprintf("%dx%d", size[0], size[1])
		b.Run(name+"/ours", func(b *testing.B) {
			inNamespace(b)
			backend := live(b, service.IPv4)
			services := make([]*service.Service, size[0])
			for i := range services {
				services[i] = benchService(i, size[1])
			}
			var cpu time.Duration
			for b.Loop() {
				start := cpuTime(b)
				s := dataplane.NewSync(backend)
				s.Set(dataplane.Owner{}, backend.Base(benchNode()))
				for _, svc := range services {
					benchSet(b, s, backend, svc)
				}
				apply(b, s)
				b.StopTimer()
				cpu += cpuTime(b) - start
				dropTable(b, backend)
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
		})
		b.Run(name+"/raw", func(b *testing.B) {
			inNamespace(b)
			list := rawServices(b, size[0], size[1])
			var cpu time.Duration
			for b.Loop() {
				b.StopTimer()
				r := newRaw(b, size[1])
				start := cpuTime(b)
				b.StartTimer()
				r.load(b, list)
				b.StopTimer()
				cpu += cpuTime(b) - start
				dropTable(b, r.b)
				b.StartTimer()
			}
			b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}

const (
	changedAt = 4711
	addedAt   = 20_000
)

// BenchmarkChange is one change in a cluster of 10,000 Services with 10 endpoints
// each, from the changed Service to the return of the kernel.
func BenchmarkChange(b *testing.B) {
	inNamespace(b)
	const services, endpoints = 10_000, 10
	backend := live(b, service.IPv4)
	sync := benchFill(b, backend, services, endpoints)
	replaced := benchService(changedAt, endpoints)
	replaced.Ports[0].Endpoints[9].Addr = netip.MustParseAddrPort("10.255.0.1:8009")
	plain := benchService(changedAt, endpoints)
	grown := benchService(changedAt, endpoints+1)
	added := benchService(addedAt, endpoints)

	ours := func(name string, odd, even func()) {
		b.Run(name+"/ours", func(b *testing.B) {
			round := 0
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if round++; round%2 == 1 {
					odd()
				} else {
					even()
				}
				apply(b, sync)
				took = append(took, time.Since(start))
				b.StopTimer()
				settle(b, backend)
				b.StartTimer()
			}
			reportMedian(b, took)
			if round%2 == 1 {
				even()
				apply(b, sync)
				settle(b, backend)
			}
		})
	}
	set := func(svc *service.Service) func() { return func() { benchSet(b, sync, backend, svc) } }
	ours("replace-endpoint", set(replaced), set(plain))
	ours("add-or-remove-endpoint", set(grown), set(plain))
	ours("add-or-remove-service", set(added), func() { sync.Remove(added.Name.String()) })
	dropTable(b, backend)

	r := newRaw(b, endpoints, endpoints+1)
	r.load(b, rawServices(b, services, endpoints))
	before, after := rawOf(b, backend, plain), rawOf(b, backend, replaced)
	more, extra := rawOf(b, backend, grown), rawOf(b, backend, added)
	raw := func(name string, odd, even, later func()) {
		b.Run(name+"/raw", func(b *testing.B) {
			round := 0
			var took []time.Duration
			for b.Loop() {
				start := time.Now()
				if round++; round%2 == 1 {
					odd()
				} else {
					even()
				}
				r.commit(b)
				took = append(took, time.Since(start))
				b.StopTimer()
				if later != nil && round%2 == 0 {
					later()
					r.commit(b)
				}
				b.StartTimer()
			}
			reportMedian(b, took)
			if round%2 == 1 {
				even()
				r.commit(b)
				if later != nil {
					later()
					r.commit(b)
				}
			}
		})
	}
	swap := func(to rawService) func() {
		return func() {
			r.batch.DeleteElement("eps-10", to.slots[9], 0)
			r.batch.AddElement("eps-10", to.slots[9], 0)
		}
	}
	raw("replace-endpoint", swap(after), swap(before), nil)
	switchTo := func(to rawService) {
		r.batch.DeleteElement(serviceIPs, to.dispatch, 0)
		r.batch.AddElement(serviceIPs, to.dispatch, 0)
	}
	raw("add-or-remove-endpoint",
		func() { r.add(more); switchTo(more) },
		func() { switchTo(before) },
		func() {
			for _, e := range more.slots {
				r.batch.DeleteElement("eps-11", e, 0)
			}
		})
	raw("add-or-remove-service",
		func() { r.add(extra); r.serve([]rawService{extra}) },
		func() {
			r.batch.DeleteElement(serviceIPs, extra.dispatch, 0)
			r.batch.DeleteElement(clusterIPs, extra.ip, 0)
		},
		func() {
			for _, e := range extra.slots {
				r.batch.DeleteElement("eps-10", e, 0)
			}
		})
}

// BenchmarkRestart is the first look of a proxy that finds everything in place.
func BenchmarkRestart(b *testing.B) {
	inNamespace(b)
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
