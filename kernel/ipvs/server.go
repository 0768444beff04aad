package ipvs

import (
	"cmp"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Protocol is an IP protocol number.
type Protocol uint8

// The protocols that IPVS balances by port.
const (
	TCP  Protocol = unix.IPPROTO_TCP
	UDP  Protocol = unix.IPPROTO_UDP
	SCTP Protocol = unix.IPPROTO_SCTP
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// ID is what a virtual server answers on.
type ID struct {
	Protocol Protocol
	Addr     netip.AddrPort
}

// Compare orders by address, protocol, port.
func (i ID) Compare(o ID) int {
	return cmp.Or(i.Addr.Addr().Compare(o.Addr.Addr()), cmp.Compare(i.Protocol, o.Protocol), cmp.Compare(i.Addr.Port(), o.Addr.Port()))
}

func (i ID) String() string { return i.Protocol.String() + " " + i.Addr.String() }

// Server is a virtual server.
type Server struct {
	ID        ID
	Scheduler string // as in /proc/net/ip_vs: rr, wrr, lc, ...
	// Flags of the scheduler alone: SchedulerPort and the like.
	Flags uint32
	// Persistence is how long a client stays with its real server, in whole
	// seconds; 0 for no persistence.
	Persistence time.Duration
}

// SchedulerPort has the schedulers sh and mh look at the client's port too
// (IP_VS_SVC_F_SCHED2).
const SchedulerPort = 0x0010

// Flags of the kernel that are no property of a server's scheduler.
const (
	flagPersistent = 0x0001
	flagHashed     = 0x0002
)

// Real is one real server of a virtual server.
type Real struct {
	Addr   netip.AddrPort
	Weight uint32
	// Forwarding is how packets come to it, 0 for NAT.
	Forwarding uint32
	// Active and Inactive are its connections; they are not written.
	Active, Inactive uint32
}

// Timeouts of idle connections, in whole seconds. 0 leaves what is set.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }
