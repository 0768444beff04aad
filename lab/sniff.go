package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Sighting is a packet as it passes an interface of a host.
type Sighting struct {
	Host, Interface string
	Out             bool // it leaves by the interface
	At              time.Time
	Packet          Packet
}

// Packet is an IP packet, taken apart as far as a lab needs.
type Packet struct {
	Proto    string // "tcp", "udp", "icmp", "icmpv6" or a number
	Src, Dst netip.AddrPort
	Length   int // of the IP packet, bytes
	// VNI and Inner are of a packet that carries another in vxlan (RFC 7348).
	VNI     int
	Inner   *Packet
	Payload []byte
}

// Text is the packet in a line, without its payload.
func (p Packet) Text() string {
	s := fmt.Sprintf("%s %s > %s, %d bytes", p.Proto, endpointText(p.Src), endpointText(p.Dst), p.Length)
	if p.Inner != nil {
		s += fmt.Sprintf(", vxlan %d with %s", p.VNI, p.Inner.Text())
	}
	return s
}

func endpointText(a netip.AddrPort) string {
	if a.Port() == 0 {
		return a.Addr().String()
	}
	return a.String()
}

// Sniffer hears every packet that passes an interface of a host.
type Sniffer struct {
	file *os.File
	done chan struct{}

	mu    sync.Mutex
	heard []Sighting
}

// allProtocols is ETH_P_ALL in network byte order.
const allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8

// Sniff starts to hear. each, if there is one, is called with every packet, in
// order; without it the Sniffer keeps them.
func (h *Host) Sniff(each func(Sighting)) (*Sniffer, error) {
	fd := -1
	names := map[int]string{}
	err := h.Do(func() error {
		interfaces, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range interfaces {
			names[i.Index] = i.Name
		}
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, allProtocols)
		if err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lab: host %s: hear packets: %w", h.Name, err)
	}
	s := &Sniffer{file: os.NewFile(uintptr(fd), "packets of "+h.Name), done: make(chan struct{})}
	if each == nil {
		each = s.keep
	}
	go s.hear(h.Name, names, each)
	return s, nil
}

func (s *Sniffer) keep(one Sighting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, one)
}

// Heard returns what was heard so far.
func (s *Sniffer) Heard() []Sighting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.heard)
}

// Close stops hearing.
func (s *Sniffer) Close() error {
	err := s.file.Close()
	<-s.done
	return err
}

// hear reads packets until the sniffer is closed.
func (s *Sniffer) hear(host string, names map[int]string, each func(Sighting)) {
	defer close(s.done)
	raw, err := s.file.SyscallConn()
	if err != nil {
		return // closed already
	}
	packet, control := make([]byte, 1<<16), make([]byte, 256)
	for {
		var n, nc int
		var from unix.Sockaddr
		var problem error
		err := raw.Read(func(fd uintptr) bool {
			n, nc, _, from, problem = unix.Recvmsg(int(fd), packet, control, 0)
			return !errors.Is(problem, unix.EAGAIN)
		})
		if err != nil {
			return // closed
		}
		link, is := from.(*unix.SockaddrLinklayer)
		if problem != nil || !is {
			continue // an interface that went down
		}
		if p, ok := decode(packet[:n]); ok {
			each(Sighting{Host: host, Interface: names[link.Ifindex], Out: link.Pkttype == unix.PACKET_OUTGOING, At: timeOf(control[:nc]), Packet: p})
		}
	}
}

// timeOf is when the kernel saw the packet.
func timeOf(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Now()
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= 16 {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
		}
	}
	return time.Now()
}

var protocols = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmpv6"}

// vxlanPorts are Linux' default and IANA's.
var vxlanPorts = []uint16{8472, 4789}

// decode takes an IP packet apart; false for what is none, a fragment or cut off.
func decode(b []byte) (Packet, bool) {
	var p Packet
	var proto byte
	var src, dst netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4 && binary.BigEndian.Uint16(b[6:])&0x3fff == 0:
		header := int(b[0]&15) * 4
		proto, p.Length = b[9], int(binary.BigEndian.Uint16(b[2:]))
		src, dst = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		if header < 20 || header > len(b) || p.Length > len(b) || p.Length < header {
			return p, false
		}
		b = b[header:p.Length]
	case len(b) >= 40 && b[0]>>4 == 6:
		proto, p.Length = b[6], int(binary.BigEndian.Uint16(b[4:]))+40
		src, dst = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		if p.Length > len(b) {
			return p, false
		}
		b = b[40:p.Length]
	default:
		return p, false
	}
	p.Proto = protocols[proto]
	if p.Proto == "" {
		p.Proto = fmt.Sprint(proto)
	}
	p.Src, p.Dst = netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0)
	ok := p.transport(b)
	return p, ok
}

// transport reads ports and payload; false for what is cut off.
func (p *Packet) transport(b []byte) bool {
	if p.Proto != "tcp" && p.Proto != "udp" {
		p.Payload = slices.Clone(b)
		return true
	}
	size := 8
	if p.Proto == "tcp" {
		if len(b) < 20 {
			return false
		}
		size = int(b[12]>>4) * 4
	}
	if len(b) < size || size < 8 {
		return false
	}
	p.Src = netip.AddrPortFrom(p.Src.Addr(), binary.BigEndian.Uint16(b))
	p.Dst = netip.AddrPortFrom(p.Dst.Addr(), binary.BigEndian.Uint16(b[2:]))
	p.Payload = slices.Clone(b[size:])
	if p.Proto == "udp" && slices.Contains(vxlanPorts, p.Dst.Port()) && len(p.Payload) > 8+14 && p.Payload[0] == 8 {
		if inner, ok := decode(p.Payload[8+14:]); ok {
			p.VNI, p.Inner = int(binary.BigEndian.Uint32(p.Payload[4:])>>8), &inner
		}
	}
	return true
}
