package judge

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"portolan/netfilter"
)

// probe is one packet to send. Its number travels where neither NAT nor a router
// changes it: as sequence and acknowledgement number of TCP, in the payload of
// UDP and echo requests. So every copy of it, every answer and every error about it
// can be told from all others.
type probe struct {
	id           uint32
	from         string // the host that sends it
	src, dst     netip.Addr
	sport, dport uint16 // of an echo request, sport is its identifier
	proto        uint8
	flags        uint8  // of TCP
	ack          uint32 // the number that is acknowledged; 0 for its own
	ttl          uint8

	policyLocal bool // it is for a Service, and the policy that counts is Local
}

func (p probe) String() string {
	text := fmt.Sprintf("%s: %s %s > %s", p.from, netfilter.ProtoName(p.proto), netip.AddrPortFrom(p.src, p.sport), netip.AddrPortFrom(p.dst, p.dport))
	if p.proto == netfilter.TCP {
		text += " flags " + flagNames(p.flags)
	}
	if p.ttl != 64 {
		text += fmt.Sprint(" ttl ", p.ttl)
	}
	return text
}

func flagNames(flags uint8) string {
	out := ""
	for i, name := range []string{"F", "S", "R", "P", "A", "U"} {
		if flags&(1<<i) != 0 {
			out += name
		}
	}
	return out
}

// firstID keeps the numbers of probes apart from what is in packets by chance.
// Answers of TCP acknowledge SYN and FIN, one each, hence the distance.
const (
	firstID = 0x5a300000
	nextID  = 4
)

func isID(n uint32) bool { return n >= firstID && n < firstID+1<<22 }

const payloadMagic = 0x6a756467 // in front of the number in a payload

// packet is the probe as it goes on the wire, from the IP header on.
func (p probe) packet() []byte {
	body := p.transport()
	if p.src.Is4() {
		h := make([]byte, 20, 20+len(body))
		h[0], h[8], h[9] = 0x45, p.ttl, p.proto
		binary.BigEndian.PutUint16(h[2:], uint16(20+len(body)))
		binary.BigEndian.PutUint16(h[4:], uint16(p.id)|1)
		copy(h[12:], p.src.AsSlice())
		copy(h[16:], p.dst.AsSlice())
		binary.BigEndian.PutUint16(h[10:], checksum(h, 0))
		return append(h, body...)
	}
	h := make([]byte, 40, 40+len(body))
	h[0], h[6], h[7] = 0x60, p.proto, p.ttl
	binary.BigEndian.PutUint16(h[4:], uint16(len(body)))
	copy(h[8:], p.src.AsSlice())
	copy(h[24:], p.dst.AsSlice())
	return append(h, body...)
}

// transport is the part behind the IP header, with its checksum.
func (p probe) transport() []byte {
	var b []byte
	at := 0 // of the checksum
	switch p.proto {
	case netfilter.TCP:
		b, at = make([]byte, 20), 16
		binary.BigEndian.PutUint32(b[4:], p.id)
		if p.flags&(netfilter.ACK|netfilter.RST) != 0 {
			ack := p.ack
			if ack == 0 {
				ack = p.id
			}
			binary.BigEndian.PutUint32(b[8:], ack)
		}
		b[12], b[13] = 5<<4, p.flags
		binary.BigEndian.PutUint16(b[14:], 0xffff)
	case netfilter.UDP:
		b, at = make([]byte, 16), 6
		binary.BigEndian.PutUint16(b[4:], 16)
		p.mark(b[8:])
	case netfilter.ICMP, netfilter.ICMPv6:
		b, at = make([]byte, 16), 2
		if b[0] = 8; p.proto == netfilter.ICMPv6 {
			b[0] = 128
		}
		binary.BigEndian.PutUint16(b[4:], p.sport)
		p.mark(b[8:])
	default:
		panic(fmt.Sprintf("judge: protocol %d", p.proto))
	}
	if p.proto == netfilter.TCP || p.proto == netfilter.UDP {
		binary.BigEndian.PutUint16(b[0:], p.sport)
		binary.BigEndian.PutUint16(b[2:], p.dport)
	}
	sum := uint32(0)
	if p.proto != netfilter.ICMP { // which alone has no pseudo header
		sum = uint32(len(b)) + uint32(p.proto)
		sum = add(add(sum, p.src.AsSlice()), p.dst.AsSlice())
	}
	binary.BigEndian.PutUint16(b[at:], checksum(b, sum))
	return b
}

func (p probe) mark(b []byte) {
	binary.BigEndian.PutUint32(b, payloadMagic)
	binary.BigEndian.PutUint32(b[4:], p.id)
}

func add(sum uint32, b []byte) uint32 {
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(b[i])<<8 | uint32(b[i+1])
	}
	return sum
}

func checksum(b []byte, sum uint32) uint16 {
	sum = add(sum, b)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// role is what a packet is to the probe whose number it bears.
type role uint8

const (
	stranger role = iota
	itself
	reply  // a TCP answer to it
	refuse // an ICMP error about it, or a reset
)

// sighting is a packet that was seen somewhere.
type sighting struct {
	id           uint32
	role         role
	src, dst     netip.Addr
	sport, dport uint16
	proto        uint8
	kind, code   uint8 // of ICMP
}

// read understands a packet from its IP header on; it may be cut off.
func read(b []byte) sighting {
	if len(b) < 20 {
		return sighting{}
	}
	var s sighting
	var body []byte
	switch b[0] >> 4 {
	case 4:
		head := int(b[0]&15) * 4
		if len(b) < head {
			return s
		}
		s.proto, body = b[9], b[head:]
		s.src, s.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	case 6:
		if len(b) < 40 {
			return s
		}
		s.proto, body = b[6], b[40:]
		s.src, s.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	}
	s.readBody(body)
	return s
}

func (s *sighting) readBody(b []byte) {
	if len(b) < 8 {
		return
	}
	s.sport, s.dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	switch s.proto {
	case netfilter.TCP:
		s.readTCP(b)
	case netfilter.UDP:
		s.readPayload(b[8:])
	case netfilter.ICMP, netfilter.ICMPv6:
		s.sport, s.dport, s.kind, s.code = binary.BigEndian.Uint16(b[4:]), 0, b[0], b[1]
		switch {
		case s.kind == 8 && s.proto == netfilter.ICMP, s.kind == 128 && s.proto == netfilter.ICMPv6:
			s.readPayload(b[8:])
		case s.kind == 0 && s.proto == netfilter.ICMP, s.kind == 129 && s.proto == netfilter.ICMPv6:
			if s.readPayload(b[8:]); s.role == itself {
				s.role = reply
			}
		case s.isError():
			if inner := read(b[8:]); inner.role != stranger {
				s.id, s.role = inner.id, refuse
			}
		}
	}
}

func (s *sighting) isError() bool {
	if s.proto == netfilter.ICMP {
		return s.kind == 3 || s.kind == 11
	}
	return s.proto == netfilter.ICMPv6 && s.kind < 128
}

func (s *sighting) readTCP(b []byte) {
	seq := binary.BigEndian.Uint32(b[4:])
	if isID(seq) {
		s.id, s.role = seq, itself
	}
	if len(b) < 14 {
		return // the inside of an ICMP error
	}
	flags, ack := b[13], binary.BigEndian.Uint32(b[8:])
	switch {
	case flags&netfilter.RST != 0 && s.role == itself && ack == 0:
		// A reset of the kernel takes over our acknowledgement number; one that we
		// sent ourselves says so in both.
		s.role = refuse
	case s.role == stranger && flags&netfilter.ACK != 0 && isID(ack-1):
		s.id, s.role = (ack-1)&^(nextID-1), reply
		if flags&netfilter.RST != 0 {
			s.role = refuse
		}
	}
}

func (s *sighting) readPayload(b []byte) {
	if len(b) >= 8 && binary.BigEndian.Uint32(b) == payloadMagic {
		s.id, s.role = binary.BigEndian.Uint32(b[4:]), itself
	}
}
