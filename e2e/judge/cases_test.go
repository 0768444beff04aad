package judge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
)

// target is an address and port that the judged node answers for.
type target struct {
	service.Frontend
	svc      *service.Service
	affinity bool
}

// targets lists what a snapshot has the node answer for.
func targets(s *service.Snapshot) (out []target) {
	services := slices.SortedFunc(s.All(), func(a, b *service.Service) int { return a.Name.Compare(b.Name) })
	for _, svc := range services {
		for _, f := range []service.Family{service.IPv4, service.IPv6} {
			for _, pf := range service.Decide(s.Node, svc, f) {
				for _, fe := range pf.Frontends {
					if fe.Kind == service.NodePort {
						fe.Addr = nodeAddr(f)
					}
					out = append(out, target{Frontend: fe, svc: svc, affinity: svc.AffinityTimeout > 0})
				}
			}
		}
	}
	return out
}

// local tells whether the traffic policy that counts at a target is Local.
func (t target) local() bool {
	if t.Kind == service.ClusterIP {
		return t.svc.InternalPolicy == service.Local
	}
	return t.svc.ExternalPolicy == service.Local
}

// nodeAddr is the judged node's address on the switch.
func nodeAddr(f service.Family) netip.Addr {
	for _, a := range topology().Nodes[0].Addrs {
		if service.FamilyOf(a) == f {
			return a
		}
	}
	panic("judge: a node without an address")
}

// model reads the manifests the way the binary does.
func (w *world) model(ctx context.Context, s kube.Settings) (*service.Snapshot, error) {
	snapshot, problems := manifests.New([]string{w.dir}, kube.NewCluster(s)).Load(ctx)
	for _, p := range problems {
		return nil, fmt.Errorf("judge: generated manifests: %w", p)
	}
	return snapshot, nil
}

// sender makes probes of one world.
type sender struct {
	w    *world
	g    generator
	made uint32
}

// stamp numbers a probe and gives it a source port of its own.
func (s *sender) stamp(p probe) probe {
	p.id = firstID + nextID*s.made
	p.sport = uint16(10000 + s.made%20000)
	s.made++
	if p.ttl == 0 {
		p.ttl = 64
	}
	if p.proto == netfilter.TCP && p.flags == 0 {
		p.flags = netfilter.SYN
	}
	return p
}

// from fills in who sends a probe; the destination is known.
func (s *sender) from(p probe, name string) (probe, error) {
	p.from = name
	host := s.w.stations[name].host
	switch {
	case name == judged:
		a, err := s.w.stations[name].source(p.dst)
		p.src = a
		return p, err
	case name == outside:
		var own []netip.Addr
		for _, a := range host.Addrs {
			if a.Is4() == p.dst.Is4() {
				own = append(own, a)
			}
		}
		p.src = one(s.g, own...)
	default:
		p.src = host.Addr(p.dst)
	}
	return p, nil
}

// behind tells whether a host's packets come by way of the other node.
func (w *world) behind(name string) bool {
	p := w.Pod(name)
	return p != nil && p.Node.Name == other
}

// flow is a probe as a question to trace. Where the packet arrives is said or left
// to be found, as a person would.
func (s *sender) flow(p probe) trace.Flow {
	f := trace.Flow{Src: p.src, Dst: p.dst, SrcPort: p.sport, DstPort: p.dport, Proto: p.proto, TTL: p.ttl, TCPFlags: p.flags}
	if p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6 {
		f.SrcPort, f.DstPort = 0, 0
	}
	if s.w.behind(p.from) {
		f.TTL--
	}
	port, here := s.w.ports[p.from]
	switch {
	case p.from == judged:
		f.Local, f.UID = true, new(uint32(0))
	case here:
		f.In, f.PhysIn = "cni0", port
	default:
		f.In = "eth0"
	}
	return f
}

// batch sends probes and judges them. A difference is looked at again when
// everything that is still on its way must have come.
func (s *sender) batch(b *bench, probes []probe) ([]*finding, error) {
	book := map[uint32]*evidence{}
	for _, p := range probes {
		book[p.id] = &evidence{}
		if err := s.w.stations[p.from].send(p); err != nil {
			return nil, err
		}
	}
	if err := s.w.listen(book, ears); err != nil {
		return nil, err
	}
	b.learn(s.w.others)
	s.w.others = nil
	for _, e := range book {
		b.learn(e.events)
	}
	var out []*finding
	patient := false
	for _, p := range probes {
		flow := s.flow(p)
		f := b.judge(p, flow, book[p.id])
		if len(f.diffs) > 0 && !patient {
			patient = true
			if err := s.w.listen(book, allEars); err != nil {
				return nil, err
			}
			f = b.judge(p, flow, book[p.id])
		}
		out = append(out, f)
	}
	return out, nil
}
