package ipvs

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"portolan/kernel/exchange"
)

// Conn reads and writes virtual servers. It is bound to the network namespace of
// the thread that dialled, and not safe for use by several goroutines.
type Conn struct {
	// Writes counts the changes that were asked for.
	Writes int

	socket *exchange.Socket
	family uint16 // number of the IPVS family of generic netlink
}

// ErrMissing says that the kernel has no IPVS.
var ErrMissing = errors.New("the kernel has no IPVS (CONFIG_IP_VS, module ip_vs)")

// Dial opens a Conn. The kernel loads its module for it.
func Dial() (*Conn, error) {
	socket, err := exchange.Dial(unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("ipvs: dial: %w", err)
	}
	c := &Conn{socket: socket, family: unix.GENL_ID_CTRL}
	if c.family, err = c.find("IPVS"); err != nil {
		socket.Close()
		return nil, fmt.Errorf("ipvs: dial: %w", err)
	}
	return c, nil
}

// Close ends the Conn.
func (c *Conn) Close() error { return c.socket.Close() }

// find asks the controller of generic netlink for the number of a family.
func (c *Conn) find(name string) (number uint16, err error) {
	const getFamily, attrID, attrName = 3, 1, 2
	var a exchange.Attributes
	a.Text(attrName, name)
	err = c.request(getFamily, 0, a, func(answer map[uint16][]byte) { number = exchange.Uint16(answer[attrID]) })
	if errors.Is(err, unix.ENOENT) || err == nil && number == 0 {
		return 0, ErrMissing
	}
	return number, err
}

// request sends a command of the family.
func (c *Conn) request(command uint8, flags uint16, a exchange.Attributes, each func(map[uint16][]byte)) error {
	body := append([]byte{command, 1, 0, 0}, a...) // genlmsghdr: command, version, reserved
	return c.socket.Request(c.family, flags, body, func(answer []byte) {
		if len(answer) >= 4 {
			each(exchange.ByType(answer[4:]))
		}
	})
}

// do sends a command that has no answer but success.
func (c *Conn) do(command uint8, a exchange.Attributes) error {
	c.Writes++
	return c.request(command, 0, a, func(map[uint16][]byte) {})
}

// addrOf reads an address, for which the kernel always sends 16 bytes.
func addrOf(family uint16, b []byte) netip.Addr {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	if len(b) < size {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(b[:size]) // of a size that it takes
	return addr
}

func familyOf(a netip.Addr) uint16 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
