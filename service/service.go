package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Family is an IP family. The zero value is neither.
type Family uint8

// The two families. Everything in a backend exists once for each.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of addr; IPv4-mapped IPv6 counts as IPv6, as the
// kernel's tables see it.
func FamilyOf(addr netip.Addr) Family {
	if addr.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Protocol is a transport protocol that a Service can name, in lower case as
// iptables writes it.
type Protocol string

// The protocols of core/v1 ServicePort.
const (
	TCP  Protocol = "tcp"
	UDP  Protocol = "udp"
	SCTP Protocol = "sctp"
)

// Name is the namespaced name of a Service.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names by namespace, then name.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Policy says which endpoints may answer: those of the cluster or only those
// on this node. The zero value is Cluster.
type Policy uint8

// The two traffic policies (KEP-2086 and core/v1 externalTrafficPolicy).
const (
	Cluster Policy = iota
	Local
)

func (p Policy) String() string {
	if p == Local {
		return "Local"
	}
	return "Cluster"
}

// Service is one Service with all its endpoints, in both families. A Service
// that changed is a new value; an unchanged one is the same pointer in the next
// Snapshot. Services that no node answers for (headless, ExternalName, other
// service-proxy-name) never become a Service.
type Service struct {
	Name Name
	// Created is the creation time of the object. Of two Services that ask for
	// the same address and port the older wins, then the lesser name.
	Created time.Time

	ClusterIPs  []netip.Addr // at most one of each family
	ExternalIPs []netip.Addr
	// LoadBalancerIPs are the ingress addresses whose ipMode is VIP (or not
	// said); addresses of mode Proxy are left to the load balancer (KEP-1860).
	LoadBalancerIPs []netip.Addr
	// SourceRanges limit who may use the LoadBalancerIPs. Empty means everybody.
	// Ranges of one family do not limit the other.
	SourceRanges []netip.Prefix

	InternalPolicy Policy
	ExternalPolicy Policy // Cluster where the type of the Service does not accept Local

	// AffinityTimeout is zero without session affinity, else how long a client
	// stays with its endpoint after its last new connection (ClientIP).
	AffinityTimeout time.Duration
	// Algorithm is how new connections are spread over endpoints.
	Algorithm Algorithm
	// Scheduler balances in ipvs mode, by the kernel's name; empty for the one of the
	// configuration. Other modes do not read it.
	Scheduler string
	// SlowStart is how long a fresh endpoint takes to its full share; 0 for no time.
	SlowStart time.Duration
	// RejectNoLocal refuses connections that find no endpoint on this node while
	// there are some elsewhere, instead of dropping them (policy Local).
	RejectNoLocal bool
	// Complaints are options that were asked for and are not followed.
	Complaints []Complaint
	// HealthCheckNodePort is 0 unless a load balancer asks this node on that
	// port whether it has local endpoints.
	HealthCheckNodePort uint16

	// Triggers say when endpoints last changed in the cluster, a time for each
	// slice that knows it, sorted. No rule depends on them.
	Triggers []time.Time

	Ports []Port // sorted by name, then protocol
}

// Port is one load-balanced port of a Service, with the endpoints behind it.
type Port struct {
	Name     string // empty on a Service with one unnamed port
	Protocol Protocol
	Port     uint16
	NodePort uint16 // 0 for none
	// Endpoints are the addresses of all slices and both families, in every
	// state, without duplicates, sorted by the text "ip:port".
	Endpoints []Endpoint
}

// Complaint is an option of a Service that is not followed, and why. The Service is
// served as if it were not there.
type Complaint struct {
	Option string // the annotation
	Value  string // as it is written; empty where the value is not what is wrong
	Reason string // what is wrong, and what would be right
}

func (c Complaint) String() string {
	if c.Value == "" {
		return fmt.Sprintf("annotation %s is not followed: %s", c.Option, c.Reason)
	}
	return fmt.Sprintf("annotation %s: %s is not followed: %s", c.Option, c.Shown(), c.Reason)
}

// shownBytes is how much of a value is shown: an annotation may be 256 KiB long.
const shownBytes = 80

// Shown is the value for people, as Shown has it.
func (c Complaint) Shown() string { return Shown(c.Value) }

// Shown is a text for people: quoted, and only the beginning of a long one.
func Shown(text string) string {
	if len(text) <= shownBytes {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%q... (%d bytes)", text[:shownBytes], len(text))
}

// PortName identifies a Port in the cluster. Its text is kube-proxy's service
// port name, "namespace/name:port" or "namespace/name" for an unnamed port.
type PortName struct {
	Service Name
	Port    string
}

func (p PortName) String() string {
	if p.Port == "" {
		return p.Service.String()
	}
	return p.Service.String() + ":" + p.Port
}

// PortName returns the identity of a port of s.
func (s *Service) PortName(p Port) PortName { return PortName{s.Name, p.Name} }

// ClusterIP returns the cluster IP of the family, and whether there is one.
func (s *Service) ClusterIP(f Family) (netip.Addr, bool) {
	for _, a := range s.ClusterIPs {
		if FamilyOf(a) == f {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// EndpointCount is the number of endpoints of all ports and states; the sum
// over Services decides about a large cluster.
func (s *Service) EndpointCount() int {
	n := 0
	for _, p := range s.Ports {
		n += len(p.Endpoints)
	}
	return n
}

// hasExternal tells whether the port has an address beside its
// cluster IPs.
func (s *Service) hasExternal(p Port, f Family) bool {
	inFamily := func(a netip.Addr) bool { return FamilyOf(a) == f }
	return p.NodePort != 0 || slices.ContainsFunc(s.ExternalIPs, inFamily) ||
		slices.ContainsFunc(s.LoadBalancerIPs, inFamily)
}

// Endpoint is one address that can answer for a Port.
type Endpoint struct {
	Addr netip.AddrPort
	// Ready is the slice's condition, which already counts
	// publishNotReadyAddresses; Serving ignores termination (KEP-1672).
	Ready, Serving, Terminating bool
	Weight                      Weight // beside others; see Ratios
	Warmth                      Warmth // of an endpoint that is fresh, with Service.SlowStart
	Node                        string // empty when not known, which is never local
	Hints                       *Hints // often shared with others; nil for none
}

// Hints say for whom an endpoint is meant. They never change.
type Hints struct {
	Zones []string // hints.forZones
	Nodes []string // hints.forNodes
}

// Equal tells whether both say the same; nil is no hint.
func (h *Hints) Equal(o *Hints) bool {
	return slices.Equal(h.zones(), o.zones()) && slices.Equal(h.nodes(), o.nodes())
}

func (h *Hints) zones() []string {
	if h == nil {
		return nil
	}
	return h.Zones
}

func (h *Hints) nodes() []string {
	if h == nil {
		return nil
	}
	return h.Nodes
}

// usable while nothing ready is left: KEP-1669.
func (e Endpoint) servesWhileTerminating() bool { return e.Serving && e.Terminating }

// LocalTo tells whether the endpoint runs on the node of that name.
func (e Endpoint) LocalTo(node string) bool { return node != "" && e.Node == node }
