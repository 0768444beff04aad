package trace

import (
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
	if m.GIDs != nil {
		return value{truth: maybe, key: "gid", why: "the group of the sending process is not known"}
	}
	if m.UIDs == nil {
		return is(true)
	}
	if r.flow.UID == nil {
		return value{truth: maybe, key: "", why: "the user of the sending process is not known"}
	}
	return is(m.UIDs.Contains(uint64(*r.flow.UID))).except(m.UIDNot)
}

// rpfilter looks up the route back to the source.
func (r *run) rpfilter(m netfilter.RPFilter) value {
	if !r.t.fib.Known() {
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
	route := r.t.fib.Lookup(q)
	ok := route.Type == netfilter.RouteUnicast || (route.Type == netfilter.RouteLocal && m.AcceptLocal)
	ok = ok && (m.Loose || r.viaDev(route.Route, r.pkt.in))
	return is(ok != m.Invert)
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
