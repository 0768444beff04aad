package netfilter

import (
	"net/netip"
)

// VirtualServer is a service of IPVS: connections to its address, or with its
// mark, are spread over its real servers.
type VirtualServer struct {
	Family Family
	Proto  uint8      // 0 of one that is known by a mark
	Addr   netip.Addr // invalid of one that is known by a mark
	Port   uint16     // 0: every port, of persistent ones
	Mark   uint32     // 0 of one that is known by its address

	Scheduler string // rr, wrr, lc, ...
	// Persistence is how many seconds a client stays with its real server; 0 for
	// no persistence. ClientBits is the length of the prefix that counts as one
	// client.
	Persistence int
	ClientBits  int
	OnePacket   bool
	Flags       string // scheduler flags and persistence engine, as written
	Reals       []RealServer
}

// Forwarding is how IPVS sends packets to a real server.
type Forwarding uint8

// The ways. Masq rewrites the destination; Route and Tunnel leave it as it is
// and send the packet to the real server's host; Local is a process of this
// host.
const (
	IPVSMasq Forwarding = iota
	IPVSRoute
	IPVSTunnel
	IPVSLocal
)

func (f Forwarding) String() string { return [...]string{"Masq", "Route", "Tunnel", "Local"}[f] }

// RealServer is one of those that a VirtualServer spreads connections over.
// Active and Inactive are its connections when it was listed.
type RealServer struct {
	Addr             netip.Addr
	Port             uint16
	Forward          Forwarding
	Weight           int
	Active, Inactive uint64
}

// ServerFor finds the virtual server of a packet: by its mark first, then by its
// address and port, then by its address and port 0, as the kernel does. nil if
// there is none.
func (h *Host) ServerFor(proto uint8, dst netip.Addr, port uint16, mark uint32) *VirtualServer {
	var best *VirtualServer
	for i := range h.Servers {
		s := &h.Servers[i]
		switch {
		case s.Mark != 0:
			if s.Mark == mark && s.Family == FamilyOf(dst) {
				return s
			}
		case s.Proto != proto || s.Addr != dst:
		case s.Port == port:
			best = s
		case s.Port == 0 && s.Persistence > 0 && best == nil:
			best = s
		}
	}
	return best
}
