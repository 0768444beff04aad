package trace

import (
	"maps"
	"net/netip"

	"portolan/netfilter"
)

// memory is what rules have learned from packets that were followed: entries of
// recent lists, elements of sets and maps, and where IPVS keeps a client.
type memory struct {
	recent  []string
	sets    map[*netfilter.NFTSet]map[string]datum
	servers map[*netfilter.VirtualServer]netip.AddrPort
}

// clone is a memory that may learn more.
func (m memory) clone() memory {
	out := memory{recent: append([]string(nil), m.recent...), servers: maps.Clone(m.servers)}
	if m.sets != nil {
		out.sets = make(map[*netfilter.NFTSet]map[string]datum, len(m.sets))
		for s, elements := range m.sets {
			out.sets[s] = maps.Clone(elements)
		}
	}
	return out
}

// put remembers an element.
func (m *memory) put(s *netfilter.NFTSet, key string, data datum) {
	if m.sets == nil {
		m.sets = map[*netfilter.NFTSet]map[string]datum{}
	}
	if m.sets[s] == nil {
		m.sets[s] = map[string]datum{}
	}
	m.sets[s][key] = data
}

// keep remembers where IPVS has sent a client.
func (m *memory) keep(s *netfilter.VirtualServer, real *netfilter.RealServer) {
	if m.servers == nil {
		m.servers = map[*netfilter.VirtualServer]netip.AddrPort{}
	}
	m.servers[s] = netip.AddrPortFrom(real.Addr, real.Port)
}

// TraceNext follows the next connection of a client whose last one became what an
// outcome of the same Tracer says: rules remember what they have learned from it.
func (t *Tracer) TraceNext(f Flow, last *Outcome) Answer { return t.trace(f, last.memory) }
