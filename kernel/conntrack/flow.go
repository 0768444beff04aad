package conntrack

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The protocols that are read; entries of others are passed over.
const (
	TCP  = unix.IPPROTO_TCP
	UDP  = unix.IPPROTO_UDP
	SCTP = unix.IPPROTO_SCTP
)

// Status are the status bits of an entry, IPS_* of the kernel.
type Status uint32

// The bits that matter here.
const (
	SeenReply Status = 1 << 1 // something came back
	Assured   Status = 1 << 2 // is kept when the table is full
)

// The states of a connection that matter here, of enum tcp_conntrack and
// sctp_conntrack.
const (
	TCPEstablished  = 3
	TCPClose        = 8 // one end has reset it
	TCPSynSent2     = 9 // both ends began at once; what is between has begun to close
	SCTPEstablished = 4
)

// Tuple is one direction of a flow as its packets have it on the wire.
type Tuple struct{ Src, Dst netip.AddrPort }

// Flow is one entry of the table. Where the destination was translated, Reply
// comes from the real one.
type Flow struct {
	Proto       uint8 // IPPROTO_*
	State       uint8 // of the protocol; 0 where it has none
	Zone        uint16
	ID          uint32 // of the entry: another with the same addresses has another
	Status      Status
	Orig, Reply Tuple
}

// Translated tells whether the destination was rewritten.
func (f Flow) Translated() bool { return f.Reply.Src != f.Orig.Dst }

func (f Flow) String() string {
	name := map[uint8]string{TCP: "tcp", UDP: "udp", SCTP: "sctp"}[f.Proto]
	if name == "" {
		name = fmt.Sprintf("proto-%d", f.Proto)
	}
	text := fmt.Sprintf("%s %v -> %v, replies from %v", name, f.Orig.Src, f.Orig.Dst, f.Reply.Src)
	if f.Status&SeenReply == 0 {
		text += " (none yet)"
	}
	return text
}

// Filter selects flows of one family; a zero field selects all.
type Filter struct {
	IPv6     bool
	Proto    uint8
	To       netip.Addr // destination of the original direction
	ToPort   uint16
	From     netip.Addr // source of the replies
	FromPort uint16
	// Unreplied selects flows to which nothing came back yet.
	Unreplied bool
}

// Match tells whether the filter selects a flow.
func (f Filter) Match(flow Flow) bool {
	addr := func(want, have netip.Addr) bool { return !want.IsValid() || want == have }
	port := func(want, have uint16) bool { return want == 0 || want == have }
	return f.IPv6 == flow.Orig.Dst.Addr().Is6() &&
		(f.Proto == 0 || f.Proto == flow.Proto) &&
		addr(f.To, flow.Orig.Dst.Addr()) && port(f.ToPort, flow.Orig.Dst.Port()) &&
		addr(f.From, flow.Reply.Src.Addr()) && port(f.FromPort, flow.Reply.Src.Port()) &&
		(!f.Unreplied || flow.Status&SeenReply == 0)
}
