package kube

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/service"
)

// OwnerOf is the Service that a slice names, with an empty name when it names none or
// a headless one.
func OwnerOf(s *discovery.EndpointSlice) service.Name {
	owner := service.Name{Namespace: s.Namespace, Name: s.Labels[discovery.LabelServiceName]}
	if _, headless := s.Labels[labelHeadless]; headless {
		owner.Name = ""
	}
	return owner
}

// Slice is what a Cluster keeps of an EndpointSlice: a hundred thousand endpoints in
// the form of the API would take most of the memory that this program has.
type Slice struct {
	owner     service.Name // as OwnerOf
	name      string
	ports     []slicePort
	endpoints []endpoint // in its order, those that are fit
	trigger   time.Time  // when it last changed, as it says; zero when it does not
}

// slicePort is a port that a Service port can be matched with: one without name or
// number ("all ports") is not supported, as in kube-proxy.
type slicePort struct {
	name     string
	protocol service.Protocol
	number   uint16
}

// NewSlice takes of s what is read of it.
func NewSlice(s *discovery.EndpointSlice) *Slice {
	out := &Slice{owner: OwnerOf(s), name: s.Name, trigger: triggerOf(s)}
	if s.AddressType == discovery.AddressTypeFQDN {
		return out
	}
	for _, p := range s.Ports {
		if p.Name != nil && p.Port != nil && uint16(*p.Port) != 0 {
			out.ports = append(out.ports, slicePort{*p.Name, protocol(p.Protocol), uint16(*p.Port)})
		}
	}
	out.endpoints = make([]endpoint, 0, len(s.Endpoints))
	var last *place
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		if addr, fit := addressOf(s.AddressType, e); fit {
			last = placeOf(e, last)
			out.endpoints = append(out.endpoints, newEndpoint(addr, e, last))
		}
	}
	return out
}

// Owner is the Service that the slice names, as OwnerOf has it.
func (s *Slice) Owner() service.Name { return s.owner }

// Name is the name of the slice in the namespace of its owner.
func (s *Slice) Name() string { return s.name }

// port returns the number that the slice gives to the port of a Service, matched by
// name and protocol, never by number; 0 for none.
func (s *Slice) port(of service.Port) uint16 {
	for _, p := range s.ports {
		if p.name == of.Name && p.protocol == of.Protocol {
			return p.number
		}
	}
	return 0
}

// endpoints merges the endpoints of all slices that serve the port.
func endpoints(port service.Port, of []*Slice, w weights) []service.Endpoint {
	type keyed struct {
		from, to int32 // of the text
		port     uint16
		endpoint *endpoint
	}
	count := 0
	for _, s := range of {
		count += len(s.endpoints)
	}
	const longest = len("255.255.255.255:65535") // of most; others have the text grow
	all, text := make([]keyed, 0, count), make([]byte, 0, count*longest)
	for _, s := range of {
		number := s.port(port)
		if number == 0 {
			continue
		}
		for i := range s.endpoints {
			k := keyed{from: int32(len(text)), port: number, endpoint: &s.endpoints[i]}
			text = netip.AddrPortFrom(k.endpoint.addr, number).AppendTo(text)
			k.to = int32(len(text))
			all = append(all, k)
		}
	}
	compare := func(a, b keyed) int { return bytes.Compare(text[a.from:a.to], text[b.from:b.to]) }
	// A running pod beats a terminating one on a reused address.
	slices.SortStableFunc(all, func(a, b keyed) int {
		return cmp.Or(compare(a, b), compareBool(a.endpoint.terminating, b.endpoint.terminating))
	})
	all = slices.CompactFunc(all, func(a, b keyed) bool { return compare(a, b) == 0 })
	out := make([]service.Endpoint, 0, len(all))
	for _, k := range all {
		out = append(out, k.endpoint.at(k.port, w))
	}
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// endpoint is an endpoint of a slice, for whatever port.
type endpoint struct {
	addr                        netip.Addr
	node                        unique.Handle[string] // of which there are few
	place                       *place                // shared with its neighbours
	ready, serving, terminating bool
}

// place is where endpoints are, and for whom they are meant.
type place struct {
	zone  string
	hints *service.Hints
}

// placeOf returns the place of an endpoint, which is often that of the one before.
func placeOf(e *discovery.Endpoint, before *place) *place {
	var p place
	if e.Zone != nil {
		p.zone = *e.Zone
	}
	if e.Hints != nil {
		p.hints = &service.Hints{}
		for _, z := range e.Hints.ForZones {
			p.hints.Zones = append(p.hints.Zones, z.Name)
		}
		for _, n := range e.Hints.ForNodes {
			p.hints.Nodes = append(p.hints.Nodes, n.Name)
		}
	}
	if before != nil && p.zone == before.zone && p.hints.Equal(before.hints) {
		return before
	}
	return &p
}

// addressOf is the address of an endpoint, where it has one of the slice's family.
func addressOf(want discovery.AddressType, e *discovery.Endpoint) (netip.Addr, bool) {
	if len(e.Addresses) == 0 {
		return netip.Addr{}, false
	}
	addr, err := parseAddr(e.Addresses[0])
	return addr, err == nil && addr.Is4() == (want == discovery.AddressTypeIPv4)
}

// newEndpoint keeps one address of an endpoint. Conditions that are not told mean ready and
// serving (discovery/v1).
func newEndpoint(addr netip.Addr, e *discovery.Endpoint, at *place) endpoint {
	out := endpoint{
		addr:        addr,
		node:        unique.Make(""),
		place:       at,
		ready:       e.Conditions.Ready == nil || *e.Conditions.Ready,
		serving:     e.Conditions.Serving == nil || *e.Conditions.Serving,
		terminating: e.Conditions.Terminating != nil && *e.Conditions.Terminating,
	}
	if e.NodeName != nil {
		out.node = unique.Make(*e.NodeName)
	}
	return out
}

// at is the endpoint of a port.
func (e endpoint) at(port uint16, w weights) service.Endpoint {
	node := e.node.Value()
	return service.Endpoint{
		Addr:        netip.AddrPortFrom(e.addr, port),
		Ready:       e.ready,
		Serving:     e.serving,
		Terminating: e.terminating,
		Node:        node,
		Hints:       e.place.hints,
		Weight:      w.of(e.addr, node, e.place.zone),
	}
}

// triggerOf is when a slice last changed, as the cluster's controller says in an
// annotation; zero without it, or with something that is no time.
func triggerOf(s *discovery.EndpointSlice) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s.Annotations[v1.EndpointsLastChangeTriggerTime])
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

// triggers are when what the slices say happened, for the latency metrics.
func triggers(of []*Slice) []time.Time {
	var out []time.Time
	for _, s := range of {
		if !s.trigger.IsZero() {
			out = append(out, s.trigger)
		}
	}
	slices.SortFunc(out, time.Time.Compare)
	return out
}
