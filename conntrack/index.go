package conntrack

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// Address is what a Service port answers on, as a flow has it. Of a NodePort
// only the port is there: it answers on the addresses of NodePorts.
type Address struct {
	Proto uint8 // IPPROTO_*
	To    netip.AddrPort
}

// numbers are the protocols of Services.
var numbers = map[service.Protocol]uint8{
	service.TCP: conntrack.TCP, service.UDP: conntrack.UDP, service.SCTP: conntrack.SCTP,
}

// Place is one Service port in one family, at one of its addresses.
type Place struct {
	Service *service.Service
	Port    *service.Port
	Kind    service.Kind

	states map[netip.AddrPort]state // of the endpoints; made when it is asked for
}

// state is what is known about an endpoint.
type state uint8

const (
	absent state = iota
	listed       // there, but it does not serve
	serves
)

// state of an endpoint, by its address. Traffic policy, topology and termination
// do not matter: what serves may keep the flows it has.
func (p *Place) state(endpoint netip.AddrPort) state {
	if p.states == nil {
		p.states = make(map[netip.AddrPort]state, len(p.Port.Endpoints))
		for _, e := range p.Port.Endpoints {
			p.states[e.Addr] = stateOf(e)
		}
	}
	return p.states[endpoint]
}

func stateOf(e service.Endpoint) state {
	if e.Serving || e.Ready {
		return serves
	}
	return listed
}

// Index knows who answers at an address in one family.
type Index struct {
	family service.Family
	at     map[Address][]*Place // never empty; the one that has it first
	gone   map[Address]*Place   // what answered there before, where nothing does now
	protos map[uint8]int        // addresses, and those gone, by protocol
}

// NewIndex returns an Index without Services.
func NewIndex(f service.Family) *Index {
	return &Index{family: f, at: map[Address][]*Place{}, gone: map[Address]*Place{}, protos: map[uint8]int{}}
}

// Change takes up one change of a Service. Addresses at which nothing answers any
// more are remembered until Forget.
func (x *Index) Change(c service.Change) {
	if c.Old != nil {
		for a, p := range places(c.Old, x.family) {
			x.take(a, p)
		}
	}
	if c.New != nil {
		for a, p := range places(c.New, x.family) {
			x.put(a, p)
		}
	}
}

// Forget ends the memory of addresses at which nothing answers any more.
func (x *Index) Forget() {
	for a := range x.gone {
		x.protos[a.Proto]--
	}
	clear(x.gone)
}

// put has a place answer at an address, beside others that claim it: the oldest wins.
func (x *Index) put(a Address, p *Place) {
	list := append(slices.Clone(x.at[a]), p)
	slices.SortStableFunc(list, func(a, b *Place) int { return older(a.Service, b.Service) })
	x.at[a] = list
	if len(list) > 1 {
		return
	}
	if x.gone[a] == nil {
		x.protos[a.Proto]++
	}
	delete(x.gone, a)
}

// take ends that; an address where nobody answers any more is remembered as gone.
func (x *Index) take(a Address, p *Place) {
	list := slices.DeleteFunc(slices.Clone(x.at[a]), func(o *Place) bool { return o.Service.Name == p.Service.Name })
	if len(list) > 0 {
		x.at[a] = list
		return
	}
	if x.at[a] != nil {
		delete(x.at, a)
		x.gone[a] = p
	}
}

// older orders Services that ask for one address: the older one has it, then the
// one with the lesser name.
func older(a, b *service.Service) int {
	return cmp.Or(a.Created.Compare(b.Created), a.Name.Compare(b.Name))
}

// places yields all addresses of a Service in one family; they are the same on
// every node.
func places(s *service.Service, f service.Family) iter.Seq2[Address, *Place] {
	return func(yield func(Address, *Place) bool) {
		for i, decided := range service.Decide(service.Node{}, s, f) {
			for _, frontend := range decided.Frontends {
				a := Address{numbers[frontend.Protocol], netip.AddrPortFrom(frontend.Addr, frontend.Port)}
				if !yield(a, &Place{Service: s, Port: &s.Ports[i], Kind: frontend.Kind}) {
					return
				}
			}
		}
	}
}

// Find returns who answers what a flow was sent to; nil for nobody.
func (x *Index) Find(f conntrack.Flow, nodePorts NodePorts) *Place {
	if list := x.at[Address{f.Proto, f.Orig.Dst}]; len(list) > 0 {
		return list[0]
	}
	if nodePorts.Has(f.Orig.Dst.Addr()) {
		if list := x.at[nodePort(f)]; len(list) > 0 {
			return list[0]
		}
	}
	return nil
}

// before returns who answered there, where nobody does any more.
func (x *Index) before(f conntrack.Flow) *Place {
	if p := x.gone[Address{f.Proto, f.Orig.Dst}]; p != nil {
		return p
	}
	return x.gone[nodePort(f)]
}

func nodePort(f conntrack.Flow) Address {
	return Address{f.Proto, netip.AddrPortFrom(netip.Addr{}, f.Orig.Dst.Port())}
}

// NodePorts are the addresses on which NodePorts answer, in one family.
type NodePorts struct {
	addrs    map[netip.Addr]bool
	loopback bool // all of it
}

// NodePortsOf returns where NodePorts answer on a node whose interfaces have the
// addresses local.
func NodePortsOf(node service.Node, f service.Family, local []netip.Addr) NodePorts {
	out := NodePorts{addrs: map[netip.Addr]bool{}}
	all := node.NodePorts.All(f)
	if all {
		out.loopback = f == service.IPv4 && node.NodePorts.Localhost
	} else {
		local = node.NodePorts.Selected(f)
	}
	for _, a := range local {
		switch {
		case service.FamilyOf(a) != f:
		case a.IsLoopback():
			out.loopback = out.loopback || !all
		default:
			out.addrs[a] = true
		}
	}
	return out
}

// Has tells whether NodePorts answer on an address.
func (n NodePorts) Has(a netip.Addr) bool {
	if a.IsLoopback() {
		return n.loopback
	}
	return n.addrs[a]
}
