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
	// Elsewhere tells that there are endpoints, and that policy Local lets none of
	// them answer here; Verdict is Drop, or Reject where that is asked for.
	Elsewhere bool
	// Masquerade tells whether the endpoint sees an address of this node
	// instead of the client's. An endpoint that reaches itself is always
	// masqueraded (hairpin), whatever this says. One in the network of this node
	// sees the client all the same: what is delivered here is never masqueraded.
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
	// Algorithm is how new connections are spread over the endpoints of a Route, in
	// the proportions of Ratios.
	Algorithm Algorithm
	// SourceRanges limit who is answered (LoadBalancer IPs only); others are
	// dropped where the Route forwards. Nil means everybody. They are the ranges
	// of the Service in its order and, when one of them contains this node's
	// address, all its load balancer addresses of the family, since what this
	// node sends to one of them may carry it as source: so does kube-proxy.
	SourceRanges []netip.Prefix
	Routes       [int(classes)]Route // by Class
}

// Route returns the route of one class of traffic.
func (f Frontend) Route(c Class) Route { return f.Routes[c] }

// PortFrontends is one Port with everything that this node answers for it in
// one family.
type PortFrontends struct {
	Port      Port
	Name      PortName
	Choice    Choice
	Frontends []Frontend
}

// Decide returns all that this node answers for the Service in one family, one
// value a port. A Service without a cluster IP of the family has none.
func Decide(node Node, s *Service, f Family) []PortFrontends {
	clusterIP, ok := s.ClusterIP(f)
	if !ok {
		return nil
	}
	sources := s.sources(node, f)
	out := make([]PortFrontends, 0, len(s.Ports))
	for _, p := range s.Ports {
		pf := PortFrontends{Port: p, Name: s.PortName(p), Choice: Choose(node, s, p, f)}
		base := Frontend{PortName: pf.Name, Protocol: p.Protocol, Port: p.Port, Affinity: s.AffinityTimeout, Algorithm: s.Algorithm}
		add := func(k Kind, addr netip.Addr, ranges []netip.Prefix, routes [int(classes)]Route) {
			fe := base
			fe.Kind, fe.Addr, fe.SourceRanges, fe.Routes = k, addr, ranges, routes
			if s.RejectNoLocal && ranges == nil {
				fe.Routes = refused(routes)
			}
			if k == NodePort {
				fe.Port = p.NodePort
			}
			pf.Frontends = append(pf.Frontends, fe)
		}
		add(ClusterIP, clusterIP, nil, internalRoutes(node, s, pf.Choice, f))
		if !s.hasExternal(p, f) {
			out = append(out, pf)
			continue
		}
		external := externalRoutes(node, s, pf.Choice, f)
		for _, a := range s.ExternalIPs {
			// One that the load balancer uses too is limited as such, or its source
			// ranges would limit nobody.
			if limited := sources != nil && slices.Contains(s.LoadBalancerIPs, a); FamilyOf(a) == f && !limited {
				add(ExternalIP, a, nil, external)
			}
		}
		for _, a := range s.LoadBalancerIPs {
			if FamilyOf(a) == f {
				add(LoadBalancerIP, a, sources, external)
			}
		}
		if p.NodePort != 0 {
			add(NodePort, netip.Addr{}, nil, external)
		}
		out = append(out, pf)
	}
	return out
}

// refused has connections refused that would be dropped. Not where there are source
// ranges: who is outside of them would learn that somebody is there.
func refused(routes [int(classes)]Route) [int(classes)]Route {
	for i := range routes {
		if r := &routes[i]; r.Verdict == Drop {
			r.Verdict = Reject
			r.Reason += "; it is to be refused"
		}
	}
	return routes
}

// sources returns the SourceRanges of the frontends of one family.
func (s *Service) sources(node Node, f Family) []netip.Prefix {
	ip, _ := node.IP(f) // no range contains the zero address
	var out []netip.Prefix
	here := false
	for _, r := range s.SourceRanges {
		if FamilyOf(r.Addr()) == f {
			out = append(out, r)
			here = here || r.Contains(ip)
		}
	}
	for _, vip := range s.LoadBalancerIPs {
		if here && FamilyOf(vip) == f {
			out = append(out, netip.PrefixFrom(vip, vip.BitLen()))
		}
	}
	return out
}

// policyRoute is the route by a traffic policy, before anybody is masqueraded or held to it.
func policyRoute(policy Policy, c Choice) Route {
	list, reason := c.Cluster, c.ClusterReason
	if policy == Local {
		list, reason = c.Local, c.LocalReason
	}
	switch {
	case !c.Any:
		return Route{Verdict: Reject, Policy: policy, Reason: "no endpoint anywhere is ready"}
	case len(list) == 0:
		return Route{Verdict: Drop, Policy: policy, Elsewhere: true,
			Reason: "no endpoint on this node, and the traffic policy is Local"}
	}
	return Route{Verdict: Forward, Policy: policy, Endpoints: list, Reason: reason}
}

// internalRoutes are those to a cluster IP: internalTrafficPolicy holds for every client.
func internalRoutes(node Node, s *Service, c Choice, f Family) (out [int(classes)]Route) {
	base := policyRoute(s.InternalPolicy, c)
	masqueraded := base
	masqueraded.Masquerade = true
	if node.MasqueradeAll {
		masqueraded.Reason += "; masqueradeAll is set"
	} else {
		masqueraded.Reason += "; traffic that does not come from a pod is masqueraded"
	}
	for _, class := range Classes() {
		out[class] = base
		if base.Verdict == Forward && (node.MasqueradeAll || (class != FromPod && node.Detector.Detects(f))) {
			out[class] = masqueraded
		}
	}
	return out
}

// externalRoutes are those to other addresses. Policy Local binds clients from outside; pods
// and this node are led to any endpoint, as in kube-proxy.
func externalRoutes(node Node, s *Service, c Choice, f Family) (out [int(classes)]Route) {
	base := policyRoute(s.ExternalPolicy, c)
	if s.ExternalPolicy == Cluster && base.Verdict == Forward {
		base.Masquerade = true
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
