package trace

import (
	"fmt"
	"strconv"

	"portolan/netfilter"
)

// physdev knows the bridge port only of frames that br_netfilter brought in.
func (r *run) physdev(m netfilter.PhysDev) value {
	p := &r.pkt
	isIn := r.onBridgePort()
	bridged := p.bridge != "" && (r.hook == netfilter.Forward || r.hook == netfilter.Postrouting)
	for _, q := range []struct {
		want *bool
		have bool
	}{{m.IsIn, isIn}, {m.IsOut, bridged}, {m.IsBridged, bridged}} {
		if q.want != nil && *q.want != q.have {
			return value{}
		}
	}
	if m.In != nil {
		switch {
		case !isIn:
			if !m.In.Not {
				return value{}
			}
		case p.physIn == "":
			return unsure("the bridge port the packet arrived by is not known")
		default:
			if m.In.Matches(p.physIn) == m.In.Not {
				return value{}
			}
		}
	}
	if m.Out != nil {
		if bridged {
			return unsure("the bridge port the packet leaves by is not known")
		}
		return is(m.Out.Not)
	}
	return is(true)
}

// onBridgePort reports whether br_netfilter brought the packet in.
func (r *run) onBridgePort() bool {
	return !r.pkt.local && r.bridgeIn && r.bridgeNF()
}

// owner knows the sender only of packets that a local socket sends.
func (r *run) owner(m netfilter.Owner) value {
	if !r.pkt.local || (r.hook != netfilter.Output && r.hook != netfilter.Postrouting) {
		// Without a socket only negated options hold.
		return is((m.UIDs == nil || m.UIDNot) && (m.GIDs == nil || m.GIDNot) && (m.Exists == nil || !*m.Exists))
	}
	if m.Exists != nil && !*m.Exists {
		return value{}
	}
	out := is(true)
	for _, q := range []struct {
		want *netfilter.NumberRange
		have *uint32
		not  bool
		what string
	}{{m.UIDs, r.flow.UID, m.UIDNot, "user"}, {m.GIDs, r.flow.GID, m.GIDNot, "group"}} {
		switch {
		case q.want == nil:
		case q.have == nil:
			out = value{truth: maybe, key: fmt.Sprint(q.what, *q.want), why: "the " + q.what + " of the sending process is not known"}.except(q.not)
		case q.want.Contains(uint64(*q.have)) == q.not:
			return value{}
		}
	}
	return out
}

// rpfilter looks up the route back to the source.
func (r *run) rpfilter(m netfilter.RPFilter) value {
	if !r.tracer.fib.Known() {
		return unsure("the routes of the host were not given")
	}
	if r.pkt.in == "lo" {
		return is(!m.Invert)
	}
	if r.pkt.in == unknownDev && !m.Loose {
		return unsure("the interface the packet arrives by is not known")
	}
	q := netfilter.Question{Dst: r.pkt.src, Src: r.pkt.dst, Proto: r.pkt.proto}
	if m.ValidMark {
		q.Mark = r.pkt.mark
	}
	route := r.tracer.fib.Lookup(q)
	ok := route.Type == netfilter.RouteUnicast || (route.Type == netfilter.RouteLocal && m.AcceptLocal)
	ok = ok && (m.Loose || r.viaDev(route.Route, r.pkt.in))
	return is(ok != m.Invert)
}

// socket asks which socket would take the packet. A first packet finds none but those
// that listen, and of these such as are bound to its very destination; one bound to
// every address counts only with --nowildcard (xt_socket of Linux).
func (r *run) socket(m netfilter.Socket) value {
	p := &r.pkt
	if p.proto != netfilter.TCP && p.proto != netfilter.UDP {
		return value{}
	}
	if p.proto == netfilter.TCP && p.flags&netfilter.SYN == 0 {
		return unsure("whether a connection of this host takes the packet is not known")
	}
	if !r.tracer.host.Have.Listeners {
		if local, known := r.tracer.fib.Local(p.dst); known && !local {
			r.assumed.add("no socket of the host has the address " + p.dst.String())
			return value{}
		}
		return unsure("whether a local socket takes the packet is not known: what listens was not given")
	}
	for _, l := range r.tracer.host.Listeners {
		wildcard := !l.Addr.IsValid() || l.Addr.IsUnspecified()
		if l.Proto != p.proto || l.Port != p.dport || !wildcard && l.Addr != p.dst || wildcard && !m.NoWildcard {
			continue
		}
		if m.Transparent {
			return unsure("whether the socket that listens at port " + strconv.Itoa(int(l.Port)) + " is transparent is not known")
		}
		return is(true)
	}
	return value{}
}

// viaDev reports whether a route leaves by an interface, also as one of
// several ways.
func (r *run) viaDev(route netfilter.Route, dev string) bool {
	if route.Dev == dev {
		return true
	}
	for _, h := range route.Hops {
		if h.Dev == dev {
			return true
		}
	}
	return false
}

// header compares a header field where its value is known.
func (r *run) header(m netfilter.Header) value {
	var n uint64
	switch m.Field {
	case netfilter.FieldTTL:
		n = uint64(r.pkt.ttl)
	case netfilter.FieldDSCP, netfilter.FieldTOS:
		r.assumed.add("the packet's TOS field is 0")
		if n = uint64(r.pkt.tos); m.Field == netfilter.FieldDSCP {
			n >>= 2
		}
	case netfilter.FieldLength:
		if m.Range.First <= 20 && m.Range.Last >= 65535 {
			return is(true)
		}
		return value{truth: maybe, key: "length " + m.Text, why: "the packet's length is not known (" + m.Text + ")"}
	default:
		return value{truth: maybe, key: "field " + m.Text, why: "a header field is not known (" + m.Text + ")"}
	}
	if m.Mask != 0 {
		n &= m.Mask
	}
	return is(m.Range.Contains(n))
}
