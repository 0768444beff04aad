package trace

import (
	"net/netip"

	"portolan/netfilter"
)

// reply follows the answer to a packet that has arrived: un-NAT by the
// connection's entry, routing, and the rules for established connections.
// It is nil where there is nothing to answer.
func (r *run) reply(o *Outcome) *Reply {
	t := r.tracer
	if o.Verdict != Forwarded && o.Verdict != Input && o.Verdict != Output {
		return nil
	}
	if !o.Src.IsValid() || !o.Dst.IsValid() {
		return &Reply{Verdict: Unknown, Src: o.Dst, SrcPort: o.DstPort, Dst: o.Src, Reason: "the source address of the packet is not known"}
	}
	if why := t.bypass(o); why != "" {
		return &Reply{Verdict: o.Verdict, Src: o.Dst, SrcPort: o.DstPort, Dst: o.Src, DstPort: o.SrcPort, Reason: why}
	}
	// What was not tracked, or not seen at all within a bridge, has left no entry: its
	// answer is a packet like any other.
	tracked := o.ct.state&(netfilter.StateNew|netfilter.StateEstablished|netfilter.StateRelated) != 0
	if tracked || o.ct.ipvs {
		known := o.ct
		if tracked {
			known.state = netfilter.StateEstablished
		}
		known.reply, known.dnatSet, known.snatSet = true, true, true
		if known.entry == nil {
			known.entry = &netfilter.ConntrackEntry{Proto: o.Proto, Orig: o.ct.orig, Reply: o.ct.answer}
		}
		r.known = &known
	}
	back := Flow{Src: o.Dst, Dst: o.Src, SrcPort: o.DstPort, DstPort: o.SrcPort, Proto: o.Proto, TTL: 64, TCPFlags: netfilter.SYN | netfilter.ACK, In: o.Out, Local: o.Verdict == Input}
	if back.Local {
		back.In = ""
	}
	if o.Proto == netfilter.ICMP {
		back.ICMPType = echoReply
	}
	r.start(back)
	p := &r.pkt
	out := &Reply{Verdict: r.verdict, Passes: true, Src: p.src, SrcPort: p.sport, Dst: p.dst, DstPort: p.dport, Reason: r.reason, Steps: r.steps}
	if t.opt.Terse {
		out.Steps = nil
	}
	if whys, _ := r.oracle.doubts(); len(whys) > 0 {
		out.Verdict, out.Reason = Unknown, whys[0]
	}
	return out
}

// echoReply stands for ICMP type 0, which Flow cannot say.
const echoReply = 255

// bypass tells why the answer does not come back through this host's NAT, ""
// if it does.
func (t *Tracer) bypass(o *Outcome) string {
	if o.Verdict != Forwarded || o.Masquerade || !t.fib.Known() {
		return ""
	}
	way := func(a netip.Addr) netfilter.Route { return t.fib.Lookup(netfilter.Question{Dst: a}).Route }
	client, server := way(o.Src), way(o.Dst)
	if client.Type == netfilter.RouteLocal {
		return "" // to this host itself
	}
	sameLink := client.Dev == server.Dev && !client.Via.IsValid() && !server.Via.IsValid()
	bridge, _ := t.host.IsBridge(server.Dev)
	r := run{tracer: t, assumed: &notes{}}
	r.pkt.dst = o.Dst
	switch {
	case sameLink && bridge && r.bridgeNF():
		return ""
	case sameLink && o.DNAT:
		return "the answer goes straight from " + o.Dst.String() + " to " + o.Src.String() + " over " + server.Dev + " and is not translated back: the client does not accept it"
	case sameLink:
		return "the answer goes straight over " + server.Dev
	case server.Via.IsValid() && client.Via.IsValid() && client.Dev == server.Dev && o.DNAT:
		return "the answer goes from " + o.Dst.String() + " to " + o.Src.String() + " by ways that need not pass this host; where they do not, it is not translated back"
	}
	return ""
}
