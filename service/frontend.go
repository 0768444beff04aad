package service

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Kind is the kind of address that a Frontend answers on.
type Kind uint8

// The kinds of address, in the order in which Frontends lists them.
const (
	ClusterIP Kind = iota
	ExternalIP
	LoadBalancerIP
	NodePort
)

func (k Kind) String() string {
	return [...]string{"ClusterIP", "externalIP", "LoadBalancer IP", "NodePort"}[k]
}

// Class is where a connection comes from, as seen by the node that answers.
type Class uint8

// The classes of traffic. A client that the PodDetector cannot tell from
// others is Outside; without a detector pods are too.
const (
	FromPod     Class = iota // a pod of this cluster
	FromHost                 // a process on this node
	FromOutside              // anything else
	classes
)

func (c Class) String() string { return [...]string{"pod", "host", "outside"}[c] }

// Classes lists all classes of traffic.
func Classes() [int(classes)]Class { return [...]Class{FromPod, FromHost, FromOutside} }

// Verdict is what happens to a new connection.
type Verdict uint8

// The verdicts of a Route.
const (
	Forward Verdict = iota // to one of the endpoints
	Reject                 // refused at once (ICMP port unreachable)
	Drop                   // no answer; the client times out
)

func (v Verdict) String() string { return [...]string{"forward", "reject", "drop"}[v] }

// Route is what happens to the connections of one Class at one Frontend.
type Route struct {
	Verdict Verdict
	// Policy is the list that Endpoints come from: Choice.Cluster or Choice.Local.
	Policy    Policy
	Endpoints []Endpoint // empty unless Verdict is Forward
	// Masquerade tells whether the endpoint sees an address of this node
	// instead of the client's. An endpoint that reaches itself is always
	// masqueraded (hairpin), whatever this says.
	Masquerade bool
	Reason     string // the decision in words
}

// Frontend is one address and port that this node answers for.
type Frontend struct {
	Kind     Kind
	PortName PortName
	Protocol Protocol
	// Addr is not valid for a NodePort, which answers on the addresses that
	// Node.NodePorts selects.
	Addr     netip.Addr
	Port     uint16
	Affinity time.Duration // 0 for none
	// SourceRanges limit who is answered (LoadBalancer IPs only); others are
	// dropped, whatever the Route says. Nil means everybody.
	SourceRanges []netip.Prefix
	Routes       [int(classes)]Route // by Class
}

// Route returns the route of one class of traffic.
func (f Frontend) Route(c Class) Route { return f.Routes[c] }

// Admits tells whether the source ranges let src in.
func (f Frontend) Admits(src netip.Addr) bool {
	return len(f.SourceRanges) == 0 ||
		slices.ContainsFunc(f.SourceRanges, func(p netip.Prefix) bool { return p.Contains(src) })
}

// PortFrontends is one Port with everything that this node answers for it in
// one family.
type PortFrontends struct {
	Port      Port
	Name      PortName
	Choice    Choice
	Frontends []Frontend
}

// Internal and External return the route of an outside client at the cluster
// IP and at any other address: what a backend needs to know when it writes the
// chains that all addresses share.
func (s *Service) Internal(c Choice) Route { return policyRoute(s.InternalPolicy, c) }

// External returns the route of an outside client at an address that is not
// the cluster IP, masquerade included.
func (s *Service) External(c Choice) Route {
	r := policyRoute(s.ExternalPolicy, c)
	r.Masquerade = s.ExternalPolicy == Cluster && r.Verdict == Forward
	return r
}

// Decide returns all that this node answers for the Service in one family, one
// value a port. A Service without a cluster IP of the family has none.
func Decide(node Node, s *Service, f Family) []PortFrontends {
	clusterIP, ok := s.ClusterIP(f)
	if !ok {
		return nil
	}
	out := make([]PortFrontends, 0, len(s.Ports))
	for _, p := range s.Ports {
		pf := PortFrontends{Port: p, Name: s.PortName(p), Choice: Choose(node, s, p, f)}
		base := Frontend{PortName: pf.Name, Protocol: p.Protocol, Port: p.Port, Affinity: s.AffinityTimeout}
		add := func(k Kind, addr netip.Addr, ranges []netip.Prefix, routes [int(classes)]Route) {
			fe := base
			fe.Kind, fe.Addr, fe.SourceRanges, fe.Routes = k, addr, ranges, routes
			if k == NodePort {
				fe.Port = p.NodePort
			}
			pf.Frontends = append(pf.Frontends, fe)
		}
		add(ClusterIP, clusterIP, nil, internalRoutes(node, s, pf.Choice, f))
		external := externalRoutes(node, s, pf.Choice, f)
		for _, a := range s.ExternalIPs {
			if FamilyOf(a) == f {
				add(ExternalIP, a, nil, external)
			}
		}
		for _, a := range s.LoadBalancerIPs {
			if FamilyOf(a) == f {
				add(LoadBalancerIP, a, s.RangesFor(node, a), external)
			}
		}
		if p.NodePort != 0 {
			add(NodePort, netip.Addr{}, nil, external)
		}
		out = append(out, pf)
	}
	return out
}

// RangesFor returns the sources that may use one load balancer address: the
// source ranges of its family and, when they contain this node, the address
// itself, since a packet looped back on the node carries it as source.
func (s *Service) RangesFor(node Node, lb netip.Addr) []netip.Prefix {
	f := FamilyOf(lb)
	ranges := s.Ranges(f)
	if s.NodeInRanges(node, f) {
		ranges = append(slices.Clip(ranges), netip.PrefixFrom(lb, lb.BitLen()))
	}
	return ranges
}

// Ranges returns the source ranges of the family.
func (s *Service) Ranges(f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range s.SourceRanges {
		if FamilyOf(r.Addr()) == f {
			out = append(out, r)
		}
	}
	return out
}

// NodeInRanges tells whether some source range of the family contains this
// node's address.
func (s *Service) NodeInRanges(node Node, f Family) bool {
	ip, ok := node.IP(f)
	return ok && slices.ContainsFunc(s.Ranges(f), func(p netip.Prefix) bool { return p.Contains(ip) })
}

func policyRoute(policy Policy, c Choice) Route {
	list, reason := c.Cluster, c.ClusterReason
	if policy == Local {
		list, reason = c.Local, c.LocalReason
	}
	switch {
	case !c.Any:
		return Route{Verdict: Reject, Policy: policy, Reason: "no endpoint anywhere is ready"}
	case len(list) == 0:
		return Route{Verdict: Drop, Policy: policy,
			Reason: "no endpoint on this node, and the traffic policy is Local"}
	}
	return Route{Verdict: Forward, Policy: policy, Endpoints: list, Reason: reason}
}

func internalRoutes(node Node, s *Service, c Choice, f Family) (out [int(classes)]Route) {
	base := s.Internal(c)
	for _, class := range Classes() {
		r := base
		if r.Verdict == Forward {
			switch {
			case node.MasqueradeAll:
				r.Masquerade = true
				r.Reason += "; masqueradeAll is set"
			case class != FromPod && node.Detector.Detects(f):
				r.Masquerade = true
				r.Reason += "; traffic that does not come from a pod is masqueraded"
			}
		}
		out[class] = r
	}
	return out
}

func externalRoutes(node Node, s *Service, c Choice, f Family) (out [int(classes)]Route) {
	base := s.External(c)
	if base.Masquerade {
		base.Reason += "; external traffic policy Cluster masquerades"
	}
	for _, class := range Classes() {
		r := base
		shortCircuit := class == FromHost || (class == FromPod && node.Detector.Detects(f))
		if s.ExternalPolicy == Local && shortCircuit && c.Any {
			r = policyRoute(Cluster, c)
			r.Masquerade = class == FromHost
			r.Reason = fmt.Sprintf("%s; traffic from a %s is not held to external traffic policy Local", r.Reason, class)
		}
		out[class] = r
	}
	return out
}
