package trace

import (
	"fmt"
	"net/netip"

	"portolan/netfilter"
)

// Flow is the packet to follow, as it enters the host.
type Flow struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16 // 0: not known
	Proto            uint8  // IP protocol number

	// In is the interface the packet arrives by; Local says that a process of
	// the host sends it. With neither, it is local if Src is an address of the
	// host, else it arrives by the interface the route to Src uses.
	In    string
	Local bool
	// Hook, when Output, sends the packet through OUTPUT whoever made it, as
	// some pod networks do; Prerouting makes it arrive. NoHook decides by In
	// and Local.
	Hook netfilter.Hook

	Mark     uint32
	TTL      uint8 // 0 stands for 64
	TCPFlags uint8 // 0 stands for SYN
	ICMPType uint8 // 0 stands for an echo request
	PhysIn   string
	// UID and GID are the user and the group of the process that sends the packet; nil
	// when they are not known.
	UID, GID *uint32
	Invalid  bool // conntrack cannot make sense of the packet
}

func (f Flow) String() string {
	return fmt.Sprintf("%s -> %s %s", endpoint(f.Src, f.SrcPort), endpoint(f.Dst, f.DstPort), netfilter.ProtoName(f.Proto))
}

// endpoint prints an address with its port, if there is one.
func endpoint(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return "unknown"
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// hasPorts reports whether packets of a protocol carry ports.
func hasPorts(proto uint8) bool {
	switch proto {
	case netfilter.TCP, netfilter.UDP, netfilter.SCTP, 33, 136:
		return true
	}
	return false
}

// packet is the packet at one moment of the walk.
type packet struct {
	src, dst     netip.Addr          // src is invalid while a masquerade address is not known
	sport, dport uint16              // 0: not known
	drawn        netfilter.PortRange // what the kernel drew sport from, if it did
	proto        uint8
	mark         uint32
	ttl          int
	flags        uint8
	icmpType     uint8
	in, out      string // "" for none, "?" for one that is not known
	bridge       string // the bridge it is bridged within, "" if routed
	physIn       string
	local        bool // a process of the host sent it
	ipvs         bool // IPVS has handled it
	tos          uint8
	priority     uint32
	// Why mark or priority are not known, "" when they are.
	markWhy, priorityWhy string
}

// unknownDev is the name of an interface that is there but not known.
const unknownDev = "?"

// conn is the packet's conntrack entry.
type conn struct {
	state            netfilter.CTState // 0 before conntrack has looked
	reply            bool              // the packet goes in the reply direction
	entry            *netfilter.ConntrackEntry
	orig             netfilter.Tuple
	answer           netfilter.Tuple // the reply tuple as NAT has made it
	dnatSet, snatSet bool            // the side is initialised: nat is not asked again
	dnat, snat       bool            // the side is rewritten
	ipvs             bool            // by IPVS, which rewrites destinations and answers itself
	mark             uint32
	confirmed        bool   // the packet has passed its last hook once: the entry is in the table
	markWhy          string // why it is not known, "" when it is
}
