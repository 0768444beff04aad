package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Device is a dummy device whose addresses are local to this host and lead nowhere
// else. Like a Conn it belongs to the network namespace of the thread that opened
// it.
type Device struct {
	name  string
	links *netlink.Handle
}

// answerWithin is how long the kernel may take to answer.
const answerWithin = 5 * time.Second

// OpenDevice returns the device of that name, which need not be there.
func OpenDevice(name string) (*Device, error) {
	links, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err == nil {
		err = links.SetSocketTimeout(answerWithin)
	}
	if err != nil {
		return nil, fmt.Errorf("ipvs: device %s: %w", name, err)
	}
	return &Device{name, links}, nil
}

// Close ends the use of the device, which stays.
func (d *Device) Close() { d.links.Close() }

// link is nil without an error when the device is not there.
func (d *Device) link() (netlink.Link, error) {
	link, err := d.links.LinkByName(d.name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ipvs: device %s: %w", d.name, err)
	}
	return link, nil
}

// Ensure makes the device, down and without addresses, unless it is there. It is
// left down: addresses of a device are local all the same, and a device that is
// down has no broadcast or link-local ones.
func (d *Device) Ensure() error {
	err := d.links.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: d.name}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("ipvs: make device %s: %w", d.name, err)
	}
	return nil
}

// Delete removes the device with its addresses, and tells whether it was there.
func (d *Device) Delete() (bool, error) {
	link, err := d.link()
	if link == nil {
		return false, err
	}
	if err := d.links.LinkDel(link); err != nil {
		return true, fmt.Errorf("ipvs: delete device %s: %w", d.name, err)
	}
	return true, nil
}

// Addresses lists the addresses of one family, and whether the device is there.
func (d *Device) Addresses(ipv6 bool) (addrs []netip.Addr, exists bool, err error) {
	link, err := d.link()
	if link == nil {
		return nil, false, err
	}
	family := netlink.FAMILY_V4
	if ipv6 {
		family = netlink.FAMILY_V6
	}
	list, err := d.links.AddrList(link, family)
	if err != nil {
		return nil, true, fmt.Errorf("ipvs: addresses of %s: %w", d.name, err)
	}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && !addr.IsLinkLocalUnicast() {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, true, nil
}

// Add makes an address local; one that is there is fine.
func (d *Device) Add(a netip.Addr) error {
	return d.change("add", a, unix.EEXIST, d.links.AddrReplace)
}

// Remove takes an address away; one that is not there is fine.
func (d *Device) Remove(a netip.Addr) error {
	return d.change("remove", a, unix.EADDRNOTAVAIL, d.links.AddrDel)
}

// change adds or removes an address; fine is the error that says that it is so already.
func (d *Device) change(verb string, a netip.Addr, fine error, do func(netlink.Link, *netlink.Addr) error) error {
	link, err := d.link()
	if err == nil && link == nil {
		err = fmt.Errorf("ipvs: device %s is not there", d.name)
	}
	if err != nil {
		return err
	}
	// Single addresses, known to be nobody else's: IPv6 need not look for others.
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}, Flags: unix.IFA_F_NODAD}
	if err := do(link, addr); err != nil && !errors.Is(err, fine) {
		return fmt.Errorf("ipvs: %s address %v of %s: %w", verb, a, d.name, err)
	}
	return nil
}
