package trace

import (
	"math/bits"
	"net/netip"

	"portolan/netfilter"
)

// fibLookup answers `fib`.
func (r *run) fibLookup(e netfilter.FIBLookup) datum {
	a, other := r.pkt.dst, r.pkt.src
	if e.Source {
		a, other = other, a
	}
	if !a.IsValid() {
		return puzzle("the source address is not known")
	}
	if e.Result == netfilter.FIBType {
		return r.fibType(e, a)
	}
	dev, why := r.fibDevice(e, a, other)
	switch {
	case why != "":
		return datum{state: unclear, key: "fib " + a.String(), why: why}
	case e.Result == netfilter.FIBPresent:
		if dev == "" {
			return number(0, 1)
		}
		return number(1, 1)
	}
	v, _ := netfilter.NameBytes(dev)
	return have(v)
}

// fibType is the type of an address, of one interface's addresses only if the
// rule says so.
func (r *run) fibType(e netfilter.FIBLookup, a netip.Addr) datum {
	dev := ""
	switch {
	case e.In:
		dev = r.pkt.in
	case e.Out:
		dev = r.pkt.out
	}
	if dev == unknownDev {
		return puzzle("the interface to whose addresses fib is restricted is not known")
	}
	kind, sure := r.tracer.fib.AddrKind(a, dev)
	if !sure {
		local, decided := r.oracle.decided("local " + a.String())
		if !decided {
			return datum{state: unclear, key: "local " + a.String(), ask: true, why: "whether " + a.String() + " is an address of the host is not known"}
		}
		kind = netfilter.KindUnicast
		if local {
			kind = netfilter.KindLocal
		}
	}
	return number(uint64(bits.TrailingZeros16(uint16(kind))), 4)
}

// fibDevice is the interface of the route to an address, "" if there is none
// or the address is the host's own. Restricted to an interface it is that one,
// if the route leads there.
func (r *run) fibDevice(e netfilter.FIBLookup, a, other netip.Addr) (dev, why string) {
	if r.hook == netfilter.Prerouting && r.pkt.in == "lo" {
		return "lo", ""
	}
	if !r.tracer.fib.Known() {
		return "", "the routes of the host were not given"
	}
	strict := ""
	switch {
	case e.In:
		strict = r.pkt.in
	case e.Out:
		strict = r.pkt.out
	}
	if strict == unknownDev {
		return "", "the interface the packet goes by is not known"
	}
	q := netfilter.Question{Dst: a, Src: other}
	if e.Mark {
		q.Mark = r.pkt.mark
	}
	route := r.tracer.fib.Lookup(q)
	switch {
	case route.Type != netfilter.RouteUnicast:
		return "", ""
	case strict == "":
		return route.Dev, ""
	case r.viaDev(route.Route, strict):
		return strict, ""
	}
	return "", ""
}
