package iptables

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"testing"

	"portolan/dataplane"
	"portolan/service"
)

// paper is a kernel that keeps the last input and says that all is well.
type paper struct{ last []byte }

func (p *paper) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(func(dataplane.Object, error) bool) {}
}

func (p *paper) Apply(_ context.Context, plan dataplane.Plan) error {
	p.last = []byte(PlanText(plan))
	return nil
}

func (p *paper) Changes(context.Context) <-chan dataplane.Notice { return nil }

const (
	benchServices  = 10_000
	benchEndpoints = 10
)

func benchService(i, endpoints int) *service.Service {
	var eps []service.Endpoint
	for j := range endpoints {
		a := netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), byte(j + 1)})
		eps = append(eps, service.Endpoint{Addr: netip.AddrPortFrom(a, 8080), Ready: true, Serving: true, Node: "n"})
	}
	return &service.Service{Name: service.Name{Namespace: fmt.Sprintf("team-%03d", i%100), Name: fmt.Sprintf("service-%05d", i)},
		ClusterIPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)})},
		Ports:      []service.Port{{Name: "http", Protocol: service.TCP, Port: 80, Endpoints: eps}}}
}

func benchNode() service.Node {
	return service.Node{Name: "n", NodePorts: service.NodePortAddresses{Localhost: true},
		Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}}}
}

func benchFill(tb testing.TB, s *dataplane.Sync, b *Backend, services []*service.Service) {
	node := benchNode()
	s.Set(dataplane.Owner{}, b.Base(node))
	for _, svc := range services {
		benchSet(tb, s, b, node, svc)
	}
}

func benchSet(tb testing.TB, s *dataplane.Sync, b *Backend, node service.Node, svc *service.Service) {
	objects, err := b.Render(node, svc)
	if err != nil {
		tb.Fatal(err)
	}
	s.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
}

func benchAll() (*Backend, []*service.Service) {
	services := make([]*service.Service, benchServices)
	for i := range services {
		services[i] = benchService(i, benchEndpoints)
	}
	return New(Options{Family: service.IPv4, MasqueradeBit: 14, RandomFully: true}), services
}

// BenchmarkOneEndpoint is the way from a changed Service to the bytes for
// iptables-restore, in a cluster of 10,000 Services with 10 endpoints each.
func BenchmarkOneEndpoint(b *testing.B) {
	backend, services := benchAll()
	kernel := &paper{}
	s := dataplane.NewSync(kernel)
	benchFill(b, s, backend, services)
	if _, err := s.Apply(b.Context()); err != nil {
		b.Fatal(err)
	}
	node := benchNode()
	versions := []*service.Service{benchService(4711, benchEndpoints+1), benchService(4711, benchEndpoints)}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		benchSet(b, s, backend, node, versions[i%2])
		i++
		if r, err := s.Apply(b.Context()); err != nil || r.Writes != 1 {
			b.Fatal(r, err)
		}
	}
	if bytes.Contains(kernel.last, []byte(":KUBE-SERVICES")) || !bytes.Contains(kernel.last, []byte("service-04711")) {
		b.Fatalf("unexpected input:\n%s", kernel.last)
	}
	b.ReportMetric(float64(len(kernel.last)), "bytes/input")
}

// BenchmarkFirstRender is a start: everything rendered, compared and written.
func BenchmarkFirstRender(b *testing.B) {
	backend, services := benchAll()
	kernel := &paper{}
	b.ReportAllocs()
	for b.Loop() {
		s := dataplane.NewSync(kernel)
		benchFill(b, s, backend, services)
		if _, err := s.Apply(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(kernel.last)), "bytes/input")
}

// BenchmarkNewService rewrites the chain of all Services.
func BenchmarkNewService(b *testing.B) {
	backend, services := benchAll()
	kernel := &paper{}
	s := dataplane.NewSync(kernel)
	benchFill(b, s, backend, services)
	if _, err := s.Apply(b.Context()); err != nil {
		b.Fatal(err)
	}
	extra := benchService(benchServices, 3)
	there := false
	b.ReportAllocs()
	for b.Loop() {
		if there = !there; there {
			benchSet(b, s, backend, benchNode(), extra)
		} else {
			s.Remove(extra.Name.String())
		}
		if _, err := s.Apply(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
