package netfilter

import (
	"net/netip"
	"slices"
	"strings"
)

// Set is an ipset with its members. It is immutable once made and safe for
// concurrent use.
type Set struct {
	Name    string
	Type    string // hash:ip,port, bitmap:port, list:set, ...
	Family  Family
	Options string // of the create line, as written
	Members []SetMember

	exact  map[SetKey]bool // members without ranges; value: nomatch
	ranges []SetMember
}

// SetMember is one entry: one part for each dimension of the type.
type SetMember struct {
	Parts   []SetPart
	NoMatch bool
	Text    string
}

// SetPart is one dimension of a member: an address range, a port range with
// its protocol, an interface, a MAC, a mark, or the name of a set.
type SetPart struct {
	Addrs AddrRange
	Ports PortRange
	Proto uint8
	Name  string // interface (with "physdev:" in front), MAC or set name
	Mark  uint32
}

// SetValue is what a packet offers for one dimension.
type SetValue struct {
	Addr  netip.Addr
	Port  uint16
	Proto uint8
	Name  string
	Mark  uint32
}

// SetKey is a packet's values for up to three dimensions.
type SetKey [3]SetValue

// Dims lists the kinds of a type's dimensions: "ip", "port", "net", "iface",
// "mac", "mark", "set".
func (s *Set) Dims() []string {
	_, dims, _ := strings.Cut(s.Type, ":")
	return strings.Split(dims, ",")
}

// NewSet makes a set ready for lookups.
func NewSet(name, typ string, family Family, options string, members []SetMember) *Set {
	s := &Set{Name: name, Type: typ, Family: family, Options: options, Members: members, exact: map[SetKey]bool{}}
	for _, m := range members {
		if k, ok := m.key(); ok {
			s.exact[k] = m.NoMatch
		} else {
			s.ranges = append(s.ranges, m)
		}
	}
	return s
}

// key is false for a member that is a range: it is looked for one by one.
func (m SetMember) key() (SetKey, bool) {
	var k SetKey
	if len(m.Parts) > len(k) {
		return k, false
	}
	for i, p := range m.Parts {
		if p.Addrs.First != p.Addrs.Last || p.Ports.First != p.Ports.Last {
			return k, false
		}
		k[i] = SetValue{Addr: p.Addrs.First, Port: p.Ports.First, Proto: p.Proto, Name: p.Name, Mark: p.Mark}
	}
	return k, true
}

// Contains looks a packet's values up. The most specific member decides; a
// nomatch member excludes.
func (s *Set) Contains(k SetKey) bool {
	if nomatch, ok := s.exact[k]; ok {
		return !nomatch
	}
	best, found, no := netip.Prefix{}, false, false
	for _, m := range s.ranges {
		if !m.holds(k) {
			continue
		}
		p := narrowest(m)
		if !found || p.Bits() > best.Bits() {
			best, no = p, m.NoMatch
		}
		found = true
	}
	return found && !no
}

// Lacks tells that no member has the values, whatever the one of dimension open is.
func (s *Set) Lacks(k SetKey, open int) bool {
	return !slices.ContainsFunc(s.Members, func(m SetMember) bool { return m.holdsBut(open, k) })
}

func (m SetMember) holds(k SetKey) bool { return m.holdsBut(-1, k) }

// holdsBut is holds for all dimensions but one.
func (m SetMember) holdsBut(open int, k SetKey) bool {
	for i, p := range m.Parts {
		v := k[i]
		switch {
		case i == open:
		case p.Addrs.First.IsValid():
			if !p.Addrs.Contains(v.Addr) || v.Addr.Is4() != p.Addrs.First.Is4() {
				return false
			}
		case p.Name != "":
			if p.Name != v.Name {
				return false
			}
		default:
			if !p.Ports.Contains(v.Port) || p.Proto != v.Proto || p.Mark != v.Mark {
				return false
			}
		}
	}
	return true
}

// narrowest gives a prefix no longer than the member's first address range,
// to rank members by.
func narrowest(m SetMember) netip.Prefix {
	for _, p := range m.Parts {
		a, b := p.Addrs.First, p.Addrs.Last
		if !a.IsValid() {
			continue
		}
		for n := a.BitLen(); n >= 0; n-- {
			if q := netip.PrefixFrom(a, n).Masked(); q.Contains(b) {
				return q
			}
		}
	}
	return netip.Prefix{}
}
