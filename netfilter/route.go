package netfilter

import (
	"fmt"
	"net/netip"
)

// RouteType is the kind of a route.
type RouteType uint8

// The kinds that decide something.
const (
	RouteUnicast RouteType = iota
	RouteLocal
	RouteBroadcast
	RouteMulticast
	RouteAnycast
	RouteBlackhole
	RouteUnreachable
	RouteProhibit
	RouteThrow
	RouteNone // no route was found
)

var routeTypeNames = [...]string{"unicast", "local", "broadcast", "multicast", "anycast", "blackhole", "unreachable", "prohibit", "throw", "none"}

func (t RouteType) String() string {
	if int(t) < len(routeTypeNames) {
		return routeTypeNames[t]
	}
	return fmt.Sprintf("route type %d", t)
}

// RouteTypeByName finds a type by the word `ip route` prints.
func RouteTypeByName(name string) (RouteType, bool) {
	for i, n := range routeTypeNames {
		if n == name && RouteType(i) != RouteNone {
			return RouteType(i), true
		}
	}
	return 0, false
}

// The routing tables that every host has.
const (
	TableDefault = 253
	TableMain    = 254
	TableLocal   = 255
)

// Route is one route. To is a masked prefix; Table 0 stands for main.
type Route struct {
	To     netip.Prefix
	Type   RouteType
	Table  int
	Via    netip.Addr
	Dev    string
	Src    netip.Addr // preferred source
	Metric uint32
	TOS    uint8
	Onlink bool
	Hops   []NextHop // of a multipath route; Via and Dev are then unset
	Text   string    // as it was written, "" if derived
}

// NextHop is one way of a multipath route.
type NextHop struct {
	Via    netip.Addr
	Dev    string
	Weight int
}

// RoutingRule is one line of `ip rule`.
type RoutingRule struct {
	Priority       uint32
	Family         Family // 0 for both
	Not            bool
	From, To       netip.Prefix // invalid: any
	IIF, OIF       string
	Mark, MarkMask uint32 // MarkMask 0: any
	TOS            uint8
	Proto          uint8
	SrcPorts       PortRange // zero: any
	DstPorts       PortRange
	UIDs           *NumberRange
	Table          int
	SuppressPrefix int // shortest accepted prefix length minus one; -1 for none
	Action         RuleAction
	Goto           uint32
	Text           string
}

// RuleAction is what a routing rule does.
type RuleAction uint8

// The actions of `ip rule`.
const (
	RuleLookup RuleAction = iota
	RuleGoto
	RuleNop
	RuleBlackhole
	RuleUnreachable
	RuleProhibit
)

// DefaultRules are the rules of a host where nobody changed any.
func DefaultRules() []RoutingRule {
	return []RoutingRule{
		{Priority: 0, Table: TableLocal, SuppressPrefix: -1},
		{Priority: 32766, Table: TableMain, SuppressPrefix: -1},
		{Priority: 32767, Table: TableDefault, SuppressPrefix: -1},
	}
}
