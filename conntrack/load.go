package conntrack

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// Load is what one Service port carries through this node in one family.
type Load struct {
	Name     service.PortName
	Protocol service.Protocol
	Port     uint16
	Family   service.Family
	Affinity bool // clients come back to their endpoint
	// Live are the flows that lead to an endpoint, TCP connections that are closing
	// left out; Unreplied of them got no answer yet.
	Live, Unreplied int
	// Stale flows lead nowhere, translated or not.
	Stale int
	// New flows began while somebody looked.
	New       int
	Endpoints []EndpointLoad // those in use and those with flows, by address
}

// EndpointLoad is the part of one endpoint.
type EndpointLoad struct {
	Addr                        netip.AddrPort
	State                       EndpointState
	Live, Unreplied, Stale, New int
	// Expected is how many of the Live flows it would have if all were balanced
	// anew, as the Service is now.
	Expected float64
}

// EndpointState is what the cluster says about an endpoint.
type EndpointState uint8

// The states of endpoints.
const (
	Gone EndpointState = iota // not listed any more
	NotReady
	Terminating // but it serves
	Ready
)

func (s EndpointState) String() string {
	return [...]string{"gone", "not ready", "terminating", "ready"}[s]
}

// Misplaced is how many of the Live flows would have to move for the endpoints to
// carry what is expected of them.
func (l Load) Misplaced() float64 {
	sum := 0.0
	for _, e := range l.Endpoints {
		sum += max(0, float64(e.Live)-e.Expected)
	}
	return sum
}

// Skew is the misplaced share of the Live flows, from 0 to 1.
func (l Load) Skew() float64 {
	if l.Live == 0 {
		return 0
	}
	return l.Misplaced() / float64(l.Live)
}

// Count counts the flows of one family by what they were meant for.
type Count struct {
	index     *Index
	node      service.Node
	nodePorts NodePorts
	local     []netip.Addr
	ports     map[*service.Port]*portCount
}

// portCount is what is counted of one Service port.
type portCount struct {
	load      Load
	decided   service.PortFrontends
	endpoints map[netip.AddrPort]*EndpointLoad
	routes    map[routeKey]int // live flows
}

// routeKey is one of the ways in which a Service port shares out its flows.
type routeKey struct {
	kind  service.Kind
	class service.Class
}

// NewCount counts flows to the Services of a Snapshot, on a node whose interfaces
// have the addresses local.
func NewCount(s *service.Snapshot, f service.Family, local []netip.Addr) *Count {
	c := &Count{index: NewIndex(f), node: s.Node, nodePorts: NodePortsOf(s.Node, f, local), local: local, ports: map[*service.Port]*portCount{}}
	for svc := range s.All() {
		c.index.Change(service.Change{New: svc})
	}
	return c
}

// Add counts a flow that is there.
func (c *Count) Add(f conntrack.Flow) {
	place := c.index.Find(f, c.nodePorts)
	if place == nil || closing(f) {
		return
	}
	p := c.port(place)
	stale := c.index.Judge(f, c.nodePorts, true) != Leads
	if stale {
		p.load.Stale++
	}
	if !f.Translated() {
		return
	}
	e := p.endpoint(place, f.Reply.Src)
	e.Live++
	p.load.Live++
	if stale {
		e.Stale++
	}
	if f.Status&conntrack.SeenReply == 0 {
		e.Unreplied++
		p.load.Unreplied++
	}
	p.routes[routeKey{place.Kind, c.class(f.Orig.Src.Addr())}]++
}

// AddNew counts n flows like f that began. Those that were not translated do not
// count.
func (c *Count) AddNew(f conntrack.Flow, n int) {
	place := c.index.Find(f, c.nodePorts)
	if place == nil || !f.Translated() {
		return
	}
	p := c.port(place)
	p.load.New += n
	p.endpoint(place, f.Reply.Src).New += n
}

// Loads returns what was counted, the Service port with most flows first. Those
// without any are not there.
func (c *Count) Loads() []Load {
	var out []Load
	for _, p := range c.ports {
		out = append(out, p.sum())
	}
	slices.SortFunc(out, func(a, b Load) int {
		return cmp.Or(cmp.Compare(b.Live, a.Live), a.Name.Service.Compare(b.Name.Service), cmp.Compare(a.Name.Port, b.Name.Port), cmp.Compare(a.Protocol, b.Protocol))
	})
	return out
}

// port begins to count a Service port, with all endpoints that it may use.
func (c *Count) port(place *Place) *portCount {
	p := c.ports[place.Port]
	if p != nil {
		return p
	}
	p = &portCount{endpoints: map[netip.AddrPort]*EndpointLoad{}, routes: map[routeKey]int{}}
	for i, decided := range service.Decide(c.node, place.Service, c.index.family) {
		if &place.Service.Ports[i] == place.Port {
			p.decided = decided
		}
	}
	p.load = Load{Name: p.decided.Name, Protocol: place.Port.Protocol, Port: place.Port.Port,
		Family: c.index.family, Affinity: place.Service.AffinityTimeout > 0}
	for _, e := range p.decided.Choice.Reachable {
		p.endpoint(place, e.Addr)
	}
	c.ports[place.Port] = p
	return p
}

func (p *portCount) endpoint(place *Place, addr netip.AddrPort) *EndpointLoad {
	if p.endpoints[addr] == nil {
		p.endpoints[addr] = &EndpointLoad{Addr: addr, State: endpointState(place.Port, addr)}
	}
	return p.endpoints[addr]
}

// endpointState is that of an address now: flows outlive the endpoint they lead to.
func endpointState(p *service.Port, addr netip.AddrPort) EndpointState {
	i := slices.IndexFunc(p.Endpoints, func(e service.Endpoint) bool { return e.Addr == addr })
	switch {
	case i < 0:
		return Gone
	case p.Endpoints[i].Ready:
		return Ready
	case p.Endpoints[i].Serving && p.Endpoints[i].Terminating:
		return Terminating
	}
	return NotReady
}

// sum shares out the flows of each route among the endpoints that it uses, by their
// weights.
func (p *portCount) sum() Load {
	expected := map[netip.AddrPort]float64{}
	for key, n := range p.routes {
		i := slices.IndexFunc(p.decided.Frontends, func(f service.Frontend) bool { return f.Kind == key.kind })
		route := p.decided.Frontends[i].Route(key.class)
		ratios := service.Ratios(route.Endpoints)
		all := 0
		for _, r := range ratios {
			all += r
		}
		for i, e := range route.Endpoints {
			expected[e.Addr] += float64(n) * float64(ratios[i]) / float64(all)
		}
	}
	out := p.load
	for _, e := range slices.SortedFunc(maps.Values(p.endpoints), func(a, b *EndpointLoad) int { return a.Addr.Compare(b.Addr) }) {
		e.Expected = expected[e.Addr]
		out.Endpoints = append(out.Endpoints, *e)
	}
	return out
}

// class of a client, as far as its address tells: pods that are known by their
// interface count as outside.
func (c *Count) class(client netip.Addr) service.Class {
	if slices.Contains(c.local, client) {
		return service.FromHost
	}
	if pods, ok := c.node.Detector.CIDR(c.index.family); ok && pods.Contains(client) {
		return service.FromPod
	}
	return service.FromOutside
}

// closing tells whether a connection of TCP has ended and is remembered for a while.
func closing(f conntrack.Flow) bool {
	return f.Proto == conntrack.TCP && f.State > conntrack.TCPEstablished && f.State < conntrack.TCPSynSent2
}
