package netfilter

import (
	"net/netip"
	"slices"
)

// FIB answers routing questions about a host, as the kernel's forwarding
// information base does: rules by priority, in each table the longest prefix,
// then the lowest metric. It is immutable and safe for concurrent use.
type FIB struct {
	host   *Host
	rules  []RoutingRule
	tables map[int]*prefixTable
	known  bool
}

// prefixTable holds one routing table by prefix.
type prefixTable struct {
	lengths [2][]int // prefix lengths in use, longest first; IPv4, IPv6
	routes  map[netip.Prefix][]Route
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (t *prefixTable) add(r Route) {
	r.To = r.To.Masked()
	i := familyIndex(r.To.Addr())
	if _, ok := t.routes[r.To]; !ok && !slices.Contains(t.lengths[i], r.To.Bits()) {
		t.lengths[i] = append(t.lengths[i], r.To.Bits())
	}
	t.routes[r.To] = append(t.routes[r.To], r)
}

func (t *prefixTable) sort() {
	for i := range t.lengths {
		slices.SortFunc(t.lengths[i], func(a, b int) int { return b - a })
	}
	for _, rs := range t.routes {
		slices.SortStableFunc(rs, func(a, b Route) int { return int(int64(a.Metric) - int64(b.Metric)) })
	}
}

// NewFIB builds the tables. The local table is made from the addresses if no
// route of it was given, connected routes are made where only addresses were
// given or a person described the host.
func NewFIB(h *Host) *FIB {
	f := &FIB{host: h, tables: map[int]*prefixTable{}, known: h.Have.Routes || h.Have.Interfaces}
	f.rules = h.RoutingRules
	if len(f.rules) == 0 {
		f.rules = DefaultRules()
	}
	f.rules = slices.Clone(f.rules)
	slices.SortStableFunc(f.rules, func(a, b RoutingRule) int { return int(int64(a.Priority) - int64(b.Priority)) })
	hasLocal := false
	for _, r := range h.Routes {
		if r.Table == 0 {
			r.Table = TableMain
		}
		hasLocal = hasLocal || r.Table == TableLocal
		f.table(r.Table).add(r)
	}
	f.addLoopback()
	for _, in := range h.Interfaces {
		for _, a := range in.Addresses {
			f.addAddress(in.Name, a, !hasLocal, !h.Have.Routes || h.Described)
		}
	}
	for _, t := range f.tables {
		t.sort()
	}
	return f
}

func (f *FIB) table(id int) *prefixTable {
	t := f.tables[id]
	if t == nil {
		t = &prefixTable{routes: map[netip.Prefix][]Route{}}
		f.tables[id] = t
	}
	return t
}

var loopbackPrefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func (f *FIB) addLoopback() {
	local := f.table(TableLocal)
	for _, p := range loopbackPrefixes {
		if _, ok := local.routes[p]; !ok {
			local.add(Route{To: p, Type: RouteLocal, Table: TableLocal, Dev: "lo"})
		}
	}
}

// addAddress adds the routes that the kernel makes for an address by itself, as far as they
// are asked for: local ones with broadcast, and the connected network.
func (f *FIB) addAddress(dev string, a InterfaceAddress, local, connected bool) {
	addr := a.Prefix.Addr()
	net := a.Prefix.Masked()
	if a.Peer.IsValid() {
		net = a.Peer.Masked()
	}
	if local && !addr.IsLoopback() {
		t := f.table(TableLocal)
		t.add(Route{To: netip.PrefixFrom(addr, addr.BitLen()), Type: RouteLocal, Table: TableLocal, Dev: dev, Src: addr})
		if addr.Is4() && net.Bits() < 31 {
			b := a.Broadcast
			if !b.IsValid() {
				b = lastOf(net)
			}
			t.add(Route{To: netip.PrefixFrom(b, 32), Type: RouteBroadcast, Table: TableLocal, Dev: dev, Src: addr})
		}
	}
	if connected && !addr.IsLoopback() && net.Bits() < addr.BitLen() {
		if t := f.table(TableMain); !hasDev(t.routes[net], dev) {
			t.add(Route{To: net, Table: TableMain, Dev: dev, Src: addr})
		}
	}
}

func hasDev(rs []Route, dev string) bool {
	return slices.ContainsFunc(rs, func(r Route) bool { return r.Dev == dev })
}

// lastOf is the broadcast address of an IPv4 prefix.
func lastOf(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		a[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(a)
}

// Known reports whether routes, or addresses from which they follow, were
// given at all.
func (f *FIB) Known() bool { return f.known }

// Question is what the kernel asks its routing tables.
type Question struct {
	Src, Dst         netip.Addr // Src may be invalid
	In, Out          string     // In is "lo" or "" for locally sent packets
	Mark             uint32
	TOS              uint8
	Proto            uint8
	SrcPort, DstPort uint16
}

// Routed is the answer: Type RouteNone when nothing matched.
type Routed struct {
	Route
	Rule RoutingRule
}

// Lookup finds the route of a packet.
func (f *FIB) Lookup(q Question) Routed {
	for i := 0; i < len(f.rules); i++ {
		r := f.rules[i]
		if !ruleMatches(r, q) {
			continue
		}
		switch r.Action {
		case RuleGoto:
			for i+1 < len(f.rules) && f.rules[i+1].Priority < r.Goto {
				i++
			}
		case RuleNop:
		case RuleBlackhole:
			return Routed{Route{Type: RouteBlackhole}, r}
		case RuleUnreachable:
			return Routed{Route{Type: RouteUnreachable}, r}
		case RuleProhibit:
			return Routed{Route{Type: RouteProhibit}, r}
		case RuleLookup:
			if t := f.tables[r.Table]; t != nil {
				if route, ok := t.lookup(q, r.SuppressPrefix); ok && route.Type != RouteThrow {
					return Routed{route, r}
				}
			}
		default:
			panic("netfilter: routing rule action")
		}
	}
	return Routed{Route: Route{Type: RouteNone}}
}

// lookup finds the longest prefix; one of at most suppress bits does not count
// (suppress_prefixlength).
func (t *prefixTable) lookup(q Question, suppress int) (Route, bool) {
	for _, bits := range t.lengths[familyIndex(q.Dst)] {
		if bits <= suppress {
			break
		}
		p, err := q.Dst.Prefix(bits)
		if err != nil {
			continue
		}
		for _, r := range t.routes[p] {
			if r.TOS != 0 && r.TOS != q.TOS {
				continue
			}
			if q.Out != "" && r.Dev != "" && r.Dev != q.Out {
				continue
			}
			return r, true
		}
	}
	return Route{}, false
}

// ruleMatches tells whether a routing rule is about a packet. One of this host counts as
// coming by lo.
func ruleMatches(r RoutingRule, q Question) bool {
	if r.Family != 0 && r.Family != FamilyOf(q.Dst) {
		return false
	}
	iif := q.In
	if iif == "" {
		iif = "lo"
	}
	ok := (!r.From.IsValid() || r.From.Bits() == 0 || (q.Src.IsValid() && r.From.Contains(q.Src))) &&
		(!r.To.IsValid() || r.To.Bits() == 0 || r.To.Contains(q.Dst)) &&
		(r.IIF == "" || r.IIF == iif) &&
		(r.OIF == "" || r.OIF == q.Out) &&
		q.Mark&r.MarkMask == r.Mark&r.MarkMask &&
		(r.TOS == 0 || r.TOS == q.TOS) &&
		(r.Proto == 0 || r.Proto == q.Proto) &&
		(r.SrcPorts == PortRange{} || r.SrcPorts.Contains(q.SrcPort)) &&
		(r.DstPorts == PortRange{} || r.DstPorts.Contains(q.DstPort)) &&
		(r.UIDs == nil || r.UIDs.Contains(0))
	return ok != r.Not
}

// Local reports whether an address is the host's own. known is false when
// the host's addresses were not given and the address does not tell by itself.
func (f *FIB) Local(a netip.Addr) (local, known bool) {
	k, known := f.AddrKind(a, "")
	return k == KindLocal, known
}

// AddrKind is the type of an address as -m addrtype sees it: a lookup in the
// local table, of one interface's addresses only if dev is not "".
func (f *FIB) AddrKind(a netip.Addr, dev string) (kind AddrKind, known bool) {
	switch {
	case a.IsMulticast():
		return KindMulticast, true
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}), a.Is4() && a.As4()[0] == 0:
		return KindBroadcast, true
	}
	t := f.tables[TableLocal]
	r, ok := t.lookup(Question{Dst: a, Out: dev}, -1)
	if !ok {
		return KindUnicast, f.host.Have.Interfaces || f.hasLocalTable()
	}
	switch r.Type {
	case RouteLocal:
		return KindLocal, true
	case RouteBroadcast:
		return KindBroadcast, true
	case RouteAnycast:
		return KindAnycast, true
	}
	return KindUnicast, true
}

func (f *FIB) hasLocalTable() bool {
	return slices.ContainsFunc(f.host.Routes, func(r Route) bool { return r.Table == TableLocal })
}
