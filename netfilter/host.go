package netfilter

import (
	"fmt"
	"iter"
	"net/netip"
	"strings"
)

// Host is all that is known of one host (one network namespace). The Have
// fields tell what was given: an empty list that was given means "none", one
// that was not given means "not known".
type Host struct {
	Tables       []*Table
	Interfaces   []Interfaced
	Routes       []Route
	RoutingRules []RoutingRule
	Neighbours   []Neighbour
	Sysctls      map[string]string // dotted names: net.ipv4.ip_forward
	Flows        []ConntrackEntry
	Sets         []*Set
	Servers      []VirtualServer // of IPVS
	Accounts     []string        // nfacct object names
	Listeners    []Listener
	Conntrack    ConntrackCounts
	Have         Known

	// Described is true when a person described the host: then what is left
	// out has the kernel's default. Otherwise it is not known.
	Described bool
	// Warnings are remarks of the sources: other variant's tables present,
	// names that are neither chain nor target.
	Warnings []string
}

// Known tells which parts of a Host were given.
type Known struct {
	Interfaces, Routes, RoutingRules, Neighbours, Sysctls, Flows, Sets, Servers, Accounts, Listeners, Conntrack bool
}

// Interfaced is a network interface with its addresses.
type Interfaced struct {
	Name      string
	Index     int // 0 when not known
	Kind      string
	Master    string // the bridge it is a port of, "" without
	MAC       string
	Down      bool
	Addresses []InterfaceAddress
}

// InterfaceAddress is an address of an interface with its prefix length.
type InterfaceAddress struct {
	Prefix    netip.Prefix // address, not masked
	Peer      netip.Prefix // of a point-to-point address; invalid without
	Broadcast netip.Addr
	Narrow    bool // scope host or link: never chosen as a source for others
	Secondary bool
}

// bridgeNames are the beginnings of names that tools give to bridges.
var bridgeNames = []string{"cni", "docker", "br-", "cbr", "kube-bridge", "virbr", "br0", "lxcbr", "podman"}

// IsBridge tells whether an interface is a bridge. sure is false when only
// its name says so.
func (h *Host) IsBridge(name string) (yes, sure bool) {
	for i := range h.Interfaces {
		in := &h.Interfaces[i]
		if in.Master == name {
			return true, true
		}
		if in.Name == name && in.Kind != "" {
			return in.Kind == "bridge", true
		}
	}
	for _, p := range bridgeNames {
		if strings.HasPrefix(name, p) {
			return true, false
		}
	}
	return false, false
}

// Interface finds an interface by name, nil if there is none.
func (h *Host) Interface(name string) *Interfaced {
	for i := range h.Interfaces {
		if h.Interfaces[i].Name == name {
			return &h.Interfaces[i]
		}
	}
	return nil
}

// Table finds a table; a zero variant finds the first of any variant.
func (h *Host) Table(f Family, v Variant, name string) *Table {
	for _, t := range h.Tables {
		if t.Serves(f) && t.Name == name && (v == Unstated || t.Variant == v) {
			return t
		}
	}
	return nil
}

// AddTable adds a table. A table of the same family, variant and name that
// was there is an error, unless one of them has no chain.
func (h *Host) AddTable(t *Table) error {
	for i, x := range h.Tables {
		if x.Family != t.Family || x.Variant != t.Variant || x.Name != t.Name {
			continue
		}
		if len(x.Chains()) == 0 {
			h.Tables[i] = t
			return nil
		}
		if len(t.Chains()) == 0 {
			return nil
		}
		return fmt.Errorf("netfilter: %s and %s both give the %s table %s (%s variant)", x.File, t.File, t.Family, t.Name, t.Variant)
	}
	h.Tables = append(h.Tables, t)
	return nil
}

// RulePlace is where a rule stands. Number counts from 1 within the chain, as the tools do.
type RulePlace struct {
	Table  *Table
	Chain  *Chain
	Number int
}

// Rules yields every rule of every table, whatever leads to it, in the order of tables,
// chains and rules.
func (h *Host) Rules() iter.Seq2[RulePlace, *Rule] {
	return func(yield func(RulePlace, *Rule) bool) {
		for _, t := range h.Tables {
			for _, c := range t.order {
				for i := range c.Rules {
					if !yield(RulePlace{t, c, i + 1}, &c.Rules[i]) {
						return
					}
				}
			}
		}
	}
}

// Set finds an ipset by name, nil if it was not given.
func (h *Host) Set(name string) *Set {
	for _, s := range h.Sets {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Neighbour is an entry of the ARP or neighbour table.
type Neighbour struct {
	Addr  netip.Addr
	MAC   string // "" while unresolved
	Dev   string
	State string // REACHABLE, STALE, FAILED, ...; "C" of arp -n becomes REACHABLE
}

// Tuple is one direction of a connection. Ports of icmp: Src is the id,
// Dst is type<<8 | code.
type Tuple struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

// Reverse is the tuple of the other direction.
func (t Tuple) Reverse() Tuple {
	return Tuple{Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}
}

// ConntrackEntry is one tracked connection.
type ConntrackEntry struct {
	Proto     uint8
	State     string // TCP state as printed, "" for others
	Timeout   int    // seconds left
	Orig      Tuple
	Reply     Tuple
	Unreplied bool
	Assured   bool
	Mark      uint32
	Zone      uint16
}

// HasDNAT reports whether the entry rewrites the destination.
func (e ConntrackEntry) HasDNAT() bool {
	return e.Orig.Dst != e.Reply.Src || (e.Orig.DstPort != e.Reply.SrcPort && e.hasPorts())
}

// HasSNAT reports whether the entry rewrites the source.
func (e ConntrackEntry) HasSNAT() bool {
	return e.Orig.Src != e.Reply.Dst || (e.Orig.SrcPort != e.Reply.DstPort && e.hasPorts())
}

func (e ConntrackEntry) hasPorts() bool { return e.Proto == 6 || e.Proto == 17 || e.Proto == 132 }

// Protocol numbers that a walk treats specially.
const (
	ICMP   uint8 = 1
	TCP    uint8 = 6
	UDP    uint8 = 17
	ICMPv6 uint8 = 58
	SCTP   uint8 = 132
)

var protoNames = map[string]uint8{
	"icmp": ICMP, "igmp": 2, "ipencap": 4, "tcp": TCP, "udp": UDP, "dccp": 33, "ipv6": 41, "gre": 47, "esp": 50, "ah": 51,
	"ipv6-icmp": ICMPv6, "icmpv6": ICMPv6, "ospf": 89, "vrrp": 112, "sctp": SCTP, "udplite": 136, "mh": 135, "ipv6-mh": 135,
}

// ProtoByName gives a protocol's number for its name; "all" is 0.
func ProtoByName(name string) (uint8, bool) {
	if name == "all" {
		return 0, true
	}
	n, ok := protoNames[name]
	return n, ok
}

// ProtoName gives the usual name of a protocol number, or the number.
func ProtoName(n uint8) string {
	switch n {
	case ICMP:
		return "icmp"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case ICMPv6:
		return "icmpv6"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto %d", n)
}
