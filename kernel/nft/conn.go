package nft

import (
	"fmt"

	"portolan/kernel/netlink"
)

// Conn is a netlink socket. It is bound to the network namespace of the thread
// that dialled, and not safe for use by several goroutines.
type Conn struct {
	socket *netlink.Socket
	seq    uint32
	ended  uint32 // transactions of this Conn
}

// Dial opens a Conn.
func Dial() (*Conn, error) {
	s, err := netlink.Open()
	if err != nil {
		return nil, fmt.Errorf("nft: %w", err)
	}
	return &Conn{socket: s}, nil
}

// Close ends the Conn.
func (c *Conn) Close() error { return c.socket.Close() }

// PortID is the netlink address of the Conn; notifications about what it writes
// carry it.
func (c *Conn) PortID() uint32 { return c.socket.PortID() }

// receive reads one datagram and yields its messages to each, which returns
// false to stop. Without wait it returns netlink.ErrNothing when there is none.
func (c *Conn) receive(wait bool, each func(netlink.Message) bool) error {
	b, err := c.socket.Receive(wait)
	if err != nil {
		return fmt.Errorf("nft: %w", err)
	}
	for m := range netlink.Messages(b) {
		if !each(m) {
			return nil
		}
	}
	return nil
}
