package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"portolan/dataplane"
)

// The containers of the objects of a pod network, in the order in which they
// are written; what goes, goes in the reverse order. All are keyed: others have
// links and routes too.
const (
	Links      = "1-link"
	Addresses  = "2-address"
	Neighbours = "3-neighbour"
	Forwards   = "4-fdb"
	Routes     = "5-route"
)

// Link is a vxlan device.
type Link struct {
	Name   string
	VNI    int
	Device string     // the external interface
	Local  netip.Addr // outer source address
	Port   int        // UDP; never 0
	MTU    int        // bytes
	MAC    MAC
	Learning,
	GBP bool
}

// Address is an address of the vxlan device, a whole host's prefix.
type Address struct {
	Device string
	Addr   netip.Addr
}

// Neighbour says which station of the vxlan network has an address.
type Neighbour struct {
	Device string
	Addr   netip.Addr
	MAC    MAC
}

// Forward says behind which outer address a station of the vxlan network is:
// an entry of the device's forwarding database.
type Forward struct {
	Device string
	MAC    MAC
	Dst    netip.Addr
}

// Route leads to a peer's pods.
type Route struct {
	Dst    netip.Prefix
	Via    netip.Addr
	Device string
	// OnLink takes Via to be on the link whatever the other routes say.
	OnLink bool
}

func keyed(container, name, body string) dataplane.Object {
	return dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed, Name: name}, Body: body}
}

// Object writes the link with the words of ip-link(8).
func (l Link) Object() dataplane.Object {
	body := fmt.Sprintf("%s address %s mtu %d type vxlan id %d dev %s local %s dstport %d", l.Name, l.MAC, l.MTU, l.VNI, l.Device, l.Local, l.Port)
	if l.Learning {
		body += " learning"
	}
	if l.GBP {
		body += " gbp"
	}
	return keyed(Links, l.Name, body)
}

// Object writes the address with the words of ip-address(8).
func (a Address) Object() dataplane.Object {
	body := fmt.Sprintf("%s dev %s", netip.PrefixFrom(a.Addr, a.Addr.BitLen()), a.Device)
	return keyed(Addresses, body, body)
}

// Object writes the neighbour with the words of ip-neighbour(8).
func (n Neighbour) Object() dataplane.Object {
	return keyed(Neighbours, n.Addr.String()+" dev "+n.Device, fmt.Sprintf("%s dev %s lladdr %s", n.Addr, n.Device, n.MAC))
}

// Object writes the entry with the words of bridge(8).
func (f Forward) Object() dataplane.Object {
	return keyed(Forwards, f.MAC.String()+" dev "+f.Device, fmt.Sprintf("%s dev %s dst %s", f.MAC, f.Device, f.Dst))
}

// Object writes the route with the words of ip-route(8).
func (r Route) Object() dataplane.Object {
	body := fmt.Sprintf("%s via %s dev %s", r.Dst, r.Via, r.Device)
	if r.OnLink {
		body += " onlink"
	}
	return keyed(Routes, r.Dst.String(), body)
}

// Parse reads the body of an Object back: a Link, Address, Neighbour, Forward
// or Route.
func Parse(o dataplane.Object) (any, error) {
	w := words{rest: strings.Fields(o.Body)}
	var v any
	switch o.Key.Container {
	case Links:
		v = w.link()
	case Addresses:
		p := w.prefix()
		v = Address{Device: w.after("dev"), Addr: p.Addr()}
	case Neighbours:
		v = Neighbour{Addr: w.addr(), Device: w.after("dev"), MAC: w.macAfter("lladdr")}
	case Forwards:
		v = Forward{MAC: w.mac(), Device: w.after("dev"), Dst: w.addrAfter("dst")}
	case Routes:
		r := Route{Dst: w.prefix(), Via: w.addrAfter("via"), Device: w.after("dev")}
		r.OnLink = w.flag("onlink")
		v = r
	default:
		return nil, fmt.Errorf("podnet: no objects are known of %q", o.Key.Container)
	}
	if len(w.rest) > 0 {
		w.fail(fmt.Errorf("%q is left over", w.rest))
	}
	if w.err != nil {
		return nil, fmt.Errorf("podnet: object %q of %s: %w", o.Body, o.Key.Container, w.err)
	}
	return v, nil
}

// words takes a text apart; its first error stays.
type words struct {
	rest []string
	err  error
}

func (w *words) fail(err error) {
	if w.err == nil && err != nil {
		w.err = err
	}
}

func (w *words) next() string {
	if len(w.rest) == 0 {
		w.fail(errors.New("ends early"))
		return ""
	}
	s := w.rest[0]
	w.rest = w.rest[1:]
	return s
}

func (w *words) after(name string) string {
	if got := w.next(); got != name {
		w.fail(fmt.Errorf("%q where %q was due", got, name))
	}
	return w.next()
}

func (w *words) flag(name string) bool {
	if len(w.rest) == 0 || w.rest[0] != name {
		return false
	}
	w.rest = w.rest[1:]
	return true
}

func (w *words) number(name string) int {
	n, err := strconv.Atoi(w.after(name))
	w.fail(err)
	return n
}

func (w *words) prefix() netip.Prefix {
	p, err := netip.ParsePrefix(w.next())
	w.fail(err)
	return p
}

func (w *words) addr() netip.Addr {
	a, err := netip.ParseAddr(w.next())
	w.fail(err)
	return a
}

func (w *words) addrAfter(name string) netip.Addr {
	a, err := netip.ParseAddr(w.after(name))
	w.fail(err)
	return a
}

func (w *words) mac() MAC {
	m, err := ParseMAC(w.next())
	w.fail(err)
	return m
}

func (w *words) macAfter(name string) MAC {
	m, err := ParseMAC(w.after(name))
	w.fail(err)
	return m
}

func (w *words) link() Link {
	l := Link{Name: w.next(), MAC: w.macAfter("address"), MTU: w.number("mtu")}
	if kind := w.after("type"); kind != "vxlan" {
		w.fail(fmt.Errorf("type %q", kind))
	}
	l.VNI, l.Device, l.Local, l.Port = w.number("id"), w.after("dev"), w.addrAfter("local"), w.number("dstport")
	l.Learning = w.flag("learning")
	l.GBP = w.flag("gbp")
	return l
}
