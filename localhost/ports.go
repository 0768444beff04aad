package localhost

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"time"

	"portolan/service"
)

// Port is where this process listens.
type Port struct {
	Addr     netip.AddrPort // a loopback address and a NodePort
	Protocol service.Protocol
}

func (p Port) String() string { return string(p.Protocol) + " " + p.Addr.String() }

func comparePorts(a, b Port) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Protocol, b.Protocol))
}

func (p Port) family() service.Family { return service.FamilyOf(p.Addr.Addr()) }

// Target is who answers at a Port.
type Target struct {
	Name service.PortName
	// Endpoints are at least one, each as often as its weight (service.Slots).
	Endpoints []netip.AddrPort
	Algorithm service.Algorithm
	// Affinity is how long all that comes to the Port stays with one endpoint after
	// its last new connection; 0 for none. On loopback all clients are one: this node.
	Affinity time.Duration
}

func (t Target) equal(o Target) bool {
	return t.Name == o.Name && t.Algorithm == o.Algorithm && t.Affinity == o.Affinity && slices.Equal(t.Endpoints, o.Endpoints)
}

// Addresses returns the loopback addresses that NodePorts are asked to answer on,
// sorted: of each network that is loopback by its own address 127.0.0.1 or ::1 when
// it is in there, else that address. A network like 0.0.0.0/0 asks for none, as in
// kube-proxy 1.37.
func Addresses(a service.NodePortAddresses) []netip.Addr {
	var out []netip.Addr
	for _, p := range a.Prefixes {
		if !p.Addr().IsLoopback() {
			continue
		}
		addr := p.Addr()
		if usual := netip.AddrFrom4([4]byte{127, 0, 0, 1}); p.Contains(usual) {
			addr = usual
		}
		out = append(out, addr)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// Ports yields where a Service is to be answered on the addresses, and by whom.
func Ports(node service.Node, svc *service.Service, addresses []netip.Addr) iter.Seq2[Port, Target] {
	return func(yield func(Port, Target) bool) {
		if !slices.ContainsFunc(svc.Ports, func(p service.Port) bool { return p.NodePort != 0 }) {
			return
		}
		for _, f := range []service.Family{service.IPv4, service.IPv6} {
			here := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return service.FamilyOf(a) != f })
			if len(here) == 0 {
				continue
			}
			for port, target := range targets(node, svc, f) {
				for _, a := range here {
					if !yield(Port{netip.AddrPortFrom(a, port.Port), port.Protocol}, target) {
						return
					}
				}
			}
		}
	}
}

// targets yields the NodePorts of a Service at which somebody answers.
func targets(node service.Node, svc *service.Service, f service.Family) iter.Seq2[service.Frontend, Target] {
	return func(yield func(service.Frontend, Target) bool) {
		for _, pf := range service.Decide(node, svc, f) {
			for _, frontend := range pf.Frontends {
				if target, ok := targetOf(frontend); ok && !yield(frontend, target) {
					return
				}
			}
		}
	}
}

// targetOf is who answers processes of this node at a frontend, if it is a NodePort
// and somebody does.
func targetOf(f service.Frontend) (Target, bool) {
	route := f.Route(service.FromHost)
	if f.Kind != service.NodePort || route.Verdict != service.Forward || (f.Protocol != service.TCP && f.Protocol != service.UDP) {
		return Target{}, false
	}
	t := Target{Name: f.PortName, Algorithm: f.Algorithm, Affinity: f.Affinity}
	for _, e := range service.Slots(route.Endpoints) {
		t.Endpoints = append(t.Endpoints, e.Addr)
	}
	return t, true
}
