package conntrack

import (
	"maps"
	"net/netip"
	"slices"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// mostScans is how many filters are better than a look at everything of their
// protocols: with a filter the kernel only walks its table, which takes a sixth of
// the time that it takes to hand all of it over (Linux 6.18, 100,000 entries).
const mostScans = 4

// Touched returns the filters of the flows that may lead nowhere since the
// Services changed, few of them. They may select more. A walk of the table takes
// 5 ms even where it is empty, which is more than all else that a change costs, so
// there is none for an endpoint of TCP that goes, but with tcpReset: its clients
// notice by themselves.
func (x *Index) Touched(changes []service.Change, tcpReset bool) []conntrack.Filter {
	narrow, byAddress, byProtocol := set{}, set{}, set{}
	for _, c := range changes {
		for t := range x.touched(c) {
			if t.address.Proto == conntrack.TCP && t.endpoint.IsValid() && !tcpReset {
				continue
			}
			f := x.everything(t.address.Proto, tcpReset)
			byProtocol[f] = true
			to, from := f, f
			to.To, to.ToPort = t.address.To.Addr(), t.address.To.Port()
			byAddress[to] = true
			// An endpoint that goes is gone from all addresses of its Service.
			from.From, from.FromPort = t.endpoint.Addr(), t.endpoint.Port()
			if t.endpoint.IsValid() {
				narrow[from] = true
			} else {
				narrow[to] = true
			}
		}
	}
	for _, s := range []set{narrow, byAddress} {
		if len(s) <= mostScans {
			return s.list()
		}
	}
	return byProtocol.list()
}

// Everything returns the filters of all flows that may lead nowhere.
func (x *Index) Everything(tcpReset bool) []conntrack.Filter {
	out := set{}
	for proto, n := range x.protos {
		if n > 0 {
			out[x.everything(proto, tcpReset)] = true
		}
	}
	return out.list()
}

// everything of one protocol: of TCP most of a table is established, and none of
// our business without tcpReset.
func (x *Index) everything(proto uint8, tcpReset bool) conntrack.Filter {
	return conntrack.Filter{IPv6: x.family == service.IPv6, Proto: proto, Unreplied: proto == conntrack.TCP && !tcpReset}
}

// set of filters.
type set map[conntrack.Filter]bool

func (s set) list() []conntrack.Filter {
	return slices.SortedFunc(maps.Keys(s), func(a, b conntrack.Filter) int {
		return slices.Compare([]uint16{uint16(a.Proto), a.ToPort, a.FromPort}, []uint16{uint16(b.Proto), b.ToPort, b.FromPort})
	})
}

// touch is what a change did to an address: endpoint is one that does less than
// before; the zero value means that any flow may be concerned.
type touch struct {
	address  Address
	endpoint netip.AddrPort
}

// touched returns what a change may have left behind.
func (x *Index) touched(c service.Change) map[touch]bool {
	out := map[touch]bool{}
	before := map[Address]*Place{}
	if c.Old != nil {
		before = maps.Collect(places(c.Old, x.family))
	}
	after := map[Address]*Place{}
	if c.New != nil {
		after = maps.Collect(places(c.New, x.family))
	}
	for a, p := range before {
		for _, e := range p.Port.Endpoints {
			now := absent
			if after[a] != nil {
				now = after[a].state(e.Addr)
			}
			if now < stateOf(e) && service.FamilyOf(e.Addr.Addr()) == x.family {
				out[touch{a, e.Addr}] = true
			}
		}
	}
	for a, p := range after {
		// Nothing was to be had there, so that flows may be from before the rules.
		if before[a] == nil || !before[a].serving(x.family) && p.serving(x.family) {
			out[touch{address: a}] = true
		}
	}
	return out
}

// serving tells whether some endpoint of the family serves.
func (p *Place) serving(f service.Family) bool {
	return slices.ContainsFunc(p.Port.Endpoints, func(e service.Endpoint) bool {
		return stateOf(e) == serves && service.FamilyOf(e.Addr.Addr()) == f
	})
}
