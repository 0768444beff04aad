package service

import (
	"net/netip"
	"slices"
)

// Choice is which endpoints of one Port this node uses in one family, chosen as
// kube-proxy 1.37 does. The lists share order with
// Port.Endpoints.
type Choice struct {
	// Cluster are the endpoints for policy Cluster; computed only when some
	// traffic uses them.
	Cluster []Endpoint
	// Local are the endpoints on this node for policy Local; computed only when
	// some traffic uses them.
	Local []Endpoint
	// Reachable are those that any traffic can reach from here: the union.
	Reachable []Endpoint
	// Any tells whether some endpoint anywhere could answer, used here or not;
	// it makes the difference between refusing and dropping.
	Any bool
	// ClusterReason and LocalReason say in words how the lists came about.
	ClusterReason, LocalReason string
}

// Choose selects the endpoints of the port that this node uses.
func Choose(node Node, s *Service, p Port, f Family) Choice {
	external := s.hasExternal(p, f)
	usesCluster := s.InternalPolicy != Local || external
	usesLocal := s.InternalPolicy == Local || (s.ExternalPolicy == Local && external)

	var c Choice
	all := inFamily(p.Endpoints, f)
	if usesCluster {
		c.Cluster, c.ClusterReason = withWeight(chooseCluster(node, all))
		c.Any = len(c.Cluster) > 0
	}
	if !usesLocal {
		c.Reachable = c.Cluster
		return c
	}
	c.Any = c.Any || slices.ContainsFunc(all, func(e Endpoint) bool { return e.Ready || e.servesWhileTerminating() })
	c.Local, c.LocalReason = withWeight(chooseLocal(node, all))
	c.Reachable = union(all, c.Cluster, c.Local)
	return c
}

func inFamily(endpoints []Endpoint, f Family) []Endpoint {
	return filter(endpoints, func(e Endpoint) bool { return FamilyOf(e.Addr.Addr()) == f })
}

// filter returns the endpoints that keep is for; uncopied when these are all, as they
// mostly are.
func filter(endpoints []Endpoint, keep func(Endpoint) bool) []Endpoint {
	if !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return !keep(e) }) {
		return slices.Clip(endpoints)
	}
	var out []Endpoint
	for _, e := range endpoints {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

// chooseCluster is traffic policy Cluster: ready endpoints, those hinted for this node or
// zone where all have hints, and terminating ones when there is nothing else (kube-proxy
// 1.37, CategorizeEndpoints).
func chooseCluster(node Node, all []Endpoint) ([]Endpoint, string) {
	ready := filter(all, func(e Endpoint) bool { return e.Ready })
	if len(ready) == 0 {
		serving := filter(all, Endpoint.servesWhileTerminating)
		if len(serving) == 0 {
			return nil, "no endpoint is ready"
		}
		return serving, "no endpoint is ready; terminating ones that still serve are used"
	}
	if hinted := allHinted(ready, node.Name, func(e Endpoint) []string { return e.Hints.nodes() }); hinted != nil {
		return hinted, "endpoints hinted for this node"
	}
	if hinted := allHinted(ready, node.Zone, func(e Endpoint) []string { return e.Hints.zones() }); hinted != nil {
		return hinted, "endpoints hinted for zone " + node.Zone
	}
	return ready, "all ready endpoints"
}

// allHinted returns the endpoints hinted for place, or nil when hints of this
// kind are not in force: one endpoint without any, or none for this place,
// switches them off for all (KEP-2433).
func allHinted(ready []Endpoint, place string, hints func(Endpoint) []string) []Endpoint {
	if place == "" || slices.ContainsFunc(ready, func(e Endpoint) bool { return len(hints(e)) == 0 }) {
		return nil
	}
	return filter(ready, func(e Endpoint) bool { return slices.Contains(hints(e), place) })
}

// chooseLocal is traffic policy Local: endpoints on this node, without regard to hints.
func chooseLocal(node Node, all []Endpoint) ([]Endpoint, string) {
	here := filter(all, func(e Endpoint) bool { return e.LocalTo(node.Name) })
	if ready := filter(here, func(e Endpoint) bool { return e.Ready }); len(ready) > 0 {
		return ready, "ready endpoints on this node"
	}
	if serving := filter(here, Endpoint.servesWhileTerminating); len(serving) > 0 {
		return serving, "no endpoint on this node is ready; terminating ones that still serve are used"
	}
	return nil, "no endpoint on this node"
}

// union merges two lists that are in the order of all.
func union(all, a, b []Endpoint) []Endpoint {
	switch {
	case len(b) == 0:
		return a
	case len(a) == 0:
		return b
	}
	var out []Endpoint
	for _, e := range all {
		inA := len(a) > 0 && a[0].Addr == e.Addr
		inB := len(b) > 0 && b[0].Addr == e.Addr
		if inA {
			a = a[1:]
		}
		if inB {
			b = b[1:]
		}
		if inA || inB {
			out = append(out, e)
		}
	}
	return out
}

// LocalReady counts the distinct addresses of ready endpoints on this node, over
// all ports: what load balancers are told on the health-check node port.
// Terminating endpoints do not count, so that load balancers drain the node.
func LocalReady(node Node, s *Service, f Family) int {
	seen := map[netip.Addr]bool{}
	for _, p := range s.Ports {
		for _, e := range inFamily(p.Endpoints, f) {
			if e.Ready && e.LocalTo(node.Name) {
				seen[e.Addr.Addr()] = true
			}
		}
	}
	return len(seen)
}
