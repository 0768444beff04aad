package judge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan/lab"
)

// station is a host of the lab with what sends probes from it and sees packets
// that come and go. It is used by one goroutine.
type station struct {
	name   string
	host   *lab.Host
	raw4   int // of IP packets with their header
	raw6   int
	packet int // of everything on all interfaces

	locals map[netip.Addr]netip.Addr // destination -> source the kernel chooses
}

// frame is a packet that a station saw.
type frame struct {
	sighting
	at   string // the station
	dev  int    // interface index
	out  bool
	here bool // addressed to this host, as far as the link layer tells
}

// roomy is the receive buffer of sockets that are read only now and then.
const roomy = 64 << 20

func newStation(name string, h *lab.Host) (*station, error) {
	s := &station{name: name, host: h, raw4: -1, raw6: -1, packet: -1, locals: map[netip.Addr]netip.Addr{}}
	err := h.Do(func() (err error) {
		if s.raw4, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		if s.raw6, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		if s.packet, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(big16(unix.ETH_P_ALL))); err != nil {
			return err
		}
		return unix.SetsockoptInt(s.packet, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, roomy)
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("judge: sockets in %s: %w", name, err)
	}
	return s, nil
}

func (s *station) close() {
	for _, fd := range []int{s.raw4, s.raw6, s.packet} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

func big16(n uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], n)
	return binary.NativeEndian.Uint16(b[:])
}

// source is the address the kernel chooses for packets to an address.
func (s *station) source(to netip.Addr) (netip.Addr, error) {
	if a, ok := s.locals[to]; ok {
		return a, nil
	}
	var out netip.Addr
	err := s.host.Do(func() error {
		family := unix.AF_INET
		if to.Is6() {
			family = unix.AF_INET6
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, sockaddr(to, 9)); err != nil {
			return err
		}
		own, err := unix.Getsockname(fd)
		switch own := own.(type) {
		case *unix.SockaddrInet4:
			out = netip.AddrFrom4(own.Addr)
		case *unix.SockaddrInet6:
			out = netip.AddrFrom16(own.Addr)
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("judge: source in %s for %v: %w", s.name, to, err)
	}
	s.locals[to] = out
	return out, nil
}

func sockaddr(a netip.Addr, port int) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: port}
}

// send puts a probe on its way. That the host itself refuses to send it is no
// error: rules and routes may say so.
func (s *station) send(p probe) error {
	fd := s.raw4
	if p.dst.Is6() {
		fd = s.raw6
	}
	err := unix.Sendto(fd, p.packet(), 0, sockaddr(p.dst, 0))
	for _, refused := range []error{unix.EPERM, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EINVAL, unix.ECONNREFUSED} {
		if errors.Is(err, refused) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("judge: send %v: %w", p, err)
	}
	return nil
}

// drain gives the packets with a probe's number that were seen since the last call.
func (s *station) drain(add func(frame)) (seen bool, err error) {
	buffer := make([]byte, 256)
	for {
		n, from, err := unix.Recvfrom(s.packet, buffer, 0)
		if errors.Is(err, unix.EAGAIN) {
			return seen, s.lost()
		}
		if err != nil {
			return seen, fmt.Errorf("judge: packets in %s: %w", s.name, err)
		}
		link, is := from.(*unix.SockaddrLinklayer)
		if !is {
			continue
		}
		f := frame{sighting: read(buffer[:n]), at: s.name, dev: link.Ifindex, out: link.Pkttype == unix.PACKET_OUTGOING, here: link.Pkttype == unix.PACKET_HOST}
		if f.role != stranger {
			seen = true
			add(f)
		}
	}
}

// lost is an error when the kernel had to throw away what nobody read in time.
func (s *station) lost() error {
	stats, err := unix.GetsockoptTpacketStats(s.packet, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return fmt.Errorf("judge: packets in %s: %w", s.name, err)
	}
	if stats.Drops > 0 {
		return fmt.Errorf("judge: packets in %s: %d were lost", s.name, stats.Drops)
	}
	return nil
}
