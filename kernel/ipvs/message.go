package ipvs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan/kernel/exchange"
	"portolan/kernel/netlink"
)

// Numbers of linux/ip_vs.h.
const (
	cmdNewService = 1
	cmdSetService = 2
	cmdDelService = 3
	cmdGetService = 4
	cmdNewDest    = 5
	cmdSetDest    = 6
	cmdDelDest    = 7
	cmdGetDest    = 8
	cmdSetConfig  = 12
	cmdGetConfig  = 13

	attrService       = 1
	attrDest          = 2
	attrTimeoutTCP    = 4
	attrTimeoutTCPFin = 5
	attrTimeoutUDP    = 6

	svcFamily    = 1
	svcProtocol  = 2
	svcAddr      = 3
	svcPort      = 4
	svcMark      = 5
	svcScheduler = 6
	svcFlags     = 7
	svcTimeout   = 8
	svcNetmask   = 9

	destAddr       = 1
	destPort       = 2
	destForwarding = 3
	destWeight     = 4
	destUpper      = 5
	destLower      = 6
	destActive     = 7
	destInactive   = 8
	destFamily     = 11

	forwardingMask = 0x0007
)

// Servers lists the virtual servers of both families; those of marks are left out.
func (c *Conn) Servers() ([]Server, error) {
	var out []Server
	err := c.request(cmdGetService, unix.NLM_F_DUMP, nil, func(answer map[uint16][]byte) {
		if s, ok := readServer(answer[attrService]); ok {
			out = append(out, s)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("ipvs: list servers: %w", err)
	}
	return out, nil
}

// readServer reads IPVS_CMD_ATTR_SERVICE. It is false for a virtual server by firewall mark,
// which is not ours.
func readServer(b []byte) (Server, bool) {
	a := exchange.ByType(b)
	addr := addrOf(exchange.Uint16(a[svcFamily]), a[svcAddr])
	if exchange.Uint32(a[svcMark]) != 0 || !addr.IsValid() {
		return Server{}, false
	}
	s := Server{
		ID:        ID{Protocol(exchange.Uint16(a[svcProtocol])), netip.AddrPortFrom(addr, exchange.Net16(a[svcPort]))},
		Scheduler: netlink.Text(a[svcScheduler]),
	}
	flags := exchange.Uint32(a[svcFlags])
	if flags&flagPersistent != 0 {
		s.Persistence = time.Duration(exchange.Uint32(a[svcTimeout])) * time.Second
	}
	s.Flags = flags &^ (flagPersistent | flagHashed)
	return s, true
}

// Reals lists the real servers of a virtual server; of one that is not there, none.
func (c *Conn) Reals(id ID) ([]Real, error) {
	var a exchange.Attributes
	a.Nested(attrService, idOf(id))
	var out []Real
	err := c.request(cmdGetDest, unix.NLM_F_DUMP, a, func(answer map[uint16][]byte) {
		if dest := answer[attrDest]; dest != nil {
			out = append(out, readReal(familyOf(id.Addr.Addr()), dest))
		}
	})
	if err != nil {
		return nil, fmt.Errorf("ipvs: list real servers of %v: %w", id, err)
	}
	return out, nil
}

// readReal reads a real server; kernels before 3.18 do not tell its family, which
// was the server's.
func readReal(family uint16, b []byte) Real {
	a := exchange.ByType(b)
	if f := exchange.Uint16(a[destFamily]); f != 0 {
		family = f
	}
	return Real{
		Addr:       netip.AddrPortFrom(addrOf(family, a[destAddr]), exchange.Net16(a[destPort])),
		Weight:     exchange.Uint32(a[destWeight]),
		Forwarding: exchange.Uint32(a[destForwarding]) & forwardingMask,
		Active:     exchange.Uint32(a[destActive]),
		Inactive:   exchange.Uint32(a[destInactive]),
	}
}

// AddServer makes a virtual server without real ones. The error is unix.EEXIST for
// one that is there, unix.ENOENT for a scheduler that the kernel does not have.
func (c *Conn) AddServer(s Server) error { return c.server("add", cmdNewService, s) }

// SetServer changes scheduler and persistence of a virtual server.
func (c *Conn) SetServer(s Server) error { return c.server("change", cmdSetService, s) }

// DeleteServer removes a virtual server with its real ones.
func (c *Conn) DeleteServer(id ID) error { return c.server("delete", cmdDelService, Server{ID: id}) }

// server sends a virtual server with all its properties (IPVS_SVC_ATTR_*).
func (c *Conn) server(verb string, command uint8, s Server) error {
	inner := idOf(s.ID)
	flags := s.Flags
	if s.Persistence > 0 {
		flags |= flagPersistent
	}
	inner.Text(svcScheduler, s.Scheduler)
	mask := uint32(math.MaxUint32)
	inner.Bytes(svcFlags, binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, flags), mask))
	inner.Uint32(svcTimeout, uint32(s.Persistence/time.Second))
	if s.ID.Addr.Addr().Is6() {
		mask = 128 // the length of a prefix
	}
	inner.Uint32(svcNetmask, mask)
	var a exchange.Attributes
	a.Nested(attrService, inner)
	if err := c.do(command, a); err != nil {
		return fmt.Errorf("ipvs: %s server %v: %w", verb, s.ID, err)
	}
	return nil
}

// AddReal adds a real server, which is reached by NAT unless it says otherwise. The
// error is unix.EINVAL for an address that no route leads to.
func (c *Conn) AddReal(id ID, r Real) error { return c.real("add", cmdNewDest, id, r) }

// SetReal changes weight and forwarding of a real server.
func (c *Conn) SetReal(id ID, r Real) error { return c.real("change", cmdSetDest, id, r) }

// DeleteReal removes a real server; what becomes of its connections is up to
// net.ipv4.vs.expire_nodest_conn.
func (c *Conn) DeleteReal(id ID, addr netip.AddrPort) error {
	return c.real("delete", cmdDelDest, id, Real{Addr: addr})
}

// real sends a real server of a virtual one (IPVS_DEST_ATTR_*).
func (c *Conn) real(verb string, command uint8, id ID, r Real) error {
	var inner, a exchange.Attributes
	inner.Bytes(destAddr, r.Addr.Addr().AsSlice())
	inner.Net16(destPort, r.Addr.Port())
	inner.Uint32(destForwarding, r.Forwarding)
	inner.Uint32(destWeight, r.Weight)
	inner.Uint32(destUpper, 0)
	inner.Uint32(destLower, 0)
	inner.Uint16(destFamily, familyOf(r.Addr.Addr()))
	a.Nested(attrService, idOf(id))
	a.Nested(attrDest, inner)
	if err := c.do(command, a); err != nil {
		return fmt.Errorf("ipvs: %s real server %v of %v: %w", verb, r.Addr, id, err)
	}
	return nil
}

// Timeouts reads the timeouts of idle connections.
func (c *Conn) Timeouts() (Timeouts, error) {
	var t Timeouts
	seconds := func(b []byte) time.Duration { return time.Duration(exchange.Uint32(b)) * time.Second }
	err := c.request(cmdGetConfig, 0, nil, func(a map[uint16][]byte) {
		t = Timeouts{seconds(a[attrTimeoutTCP]), seconds(a[attrTimeoutTCPFin]), seconds(a[attrTimeoutUDP])}
	})
	if err != nil {
		return Timeouts{}, fmt.Errorf("ipvs: read timeouts: %w", err)
	}
	return t, nil
}

// SetTimeouts sets those that are not 0.
func (c *Conn) SetTimeouts(t Timeouts) error {
	var a exchange.Attributes
	a.Uint32(attrTimeoutTCP, uint32(t.TCP/time.Second))
	a.Uint32(attrTimeoutTCPFin, uint32(t.TCPFin/time.Second))
	a.Uint32(attrTimeoutUDP, uint32(t.UDP/time.Second))
	if err := c.do(cmdSetConfig, a); err != nil {
		return fmt.Errorf("ipvs: set timeouts: %w", err)
	}
	return nil
}

func idOf(id ID) exchange.Attributes {
	var a exchange.Attributes
	a.Uint16(svcFamily, familyOf(id.Addr.Addr()))
	a.Uint16(svcProtocol, uint16(id.Protocol))
	a.Bytes(svcAddr, id.Addr.Addr().AsSlice())
	a.Net16(svcPort, id.Addr.Port())
	return a
}
