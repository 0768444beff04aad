package judge

import (
	"context"

	"portolan/netfilter"
	"portolan/netfilter/live"
	"portolan/trace"
)

// Connections that the node tracks: probes are sent once more, and whoever got one
// sends an answer. The kernel judges what trace says of them with the connections
// listed, and of an answer also what it foresaw when it was asked about the probe.

// again is a probe of the same connection.
func (r *round) again(f *finding) (probe, bool) {
	p := f.probe
	switch {
	case p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6:
		return p, false // trace.Flow does not tell echo requests apart
	case p.proto == netfilter.TCP && f.fact.verdict == trace.Input:
		return p, false // the node has reset it
	}
	p.id = firstID + nextID*r.made
	r.made++
	return p, true
}

// repeat sends probes again and judges them.
func (r *round) repeat(ctx context.Context, findings []*finding) ([]*finding, error) {
	var probes []probe
	for _, f := range findings {
		if p, ok := r.again(f); ok && len(probes) < batchSize/2 {
			probes = append(probes, p)
		}
	}
	b, err := r.tracking(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.batch(b, probes)
	for _, f := range out {
		f.known = true
	}
	return out, err
}

// tracking is the bench with the connections as they are now.
func (r *round) tracking(ctx context.Context) (*bench, error) {
	var host *netfilter.Host
	err := r.w.node.Do(func() (err error) {
		host, err = live.Read(ctx, live.Options{})
		return err
	})
	if err != nil {
		return nil, err
	}
	b := newBench(newRuleset(host, r.w.variant, r.w.devices))
	b.remember, b.taken = r.bench.remember, r.bench.taken
	return b, nil
}

// answer is the packet that answers a probe, if somebody can send one.
func (r *round) answer(f *finding) (probe, bool) {
	k := f.fact
	p := probe{src: k.dst, dst: k.src, sport: k.dport, dport: k.sport, proto: f.probe.proto, ttl: 64, id: firstID + nextID*r.made}
	switch {
	case !k.dst.IsValid() || f.outcome == nil || p.proto == netfilter.ICMP || p.proto == netfilter.ICMPv6:
		return p, false
	case p.proto == netfilter.TCP && f.probe.flags != netfilter.SYN:
		return p, false // it begins nothing that could be answered
	case k.src != f.probe.src && !r.w.owns(k.src) && !k.src.IsLoopback():
		return p, false // SNAT to an address that leads to nobody
	case k.verdict == trace.Input && p.proto == netfilter.TCP:
		return p, false // the node has reset it itself
	case k.verdict == trace.Input:
		p.from = judged
	case len(k.who) == 1:
		p.from = k.who[0]
	default:
		// By way of the other node, to one of its pods.
		for _, name := range k.who {
			if name != other {
				p.from = name
			}
		}
	}
	// Not to itself, which needs no node.
	if s := r.w.stations[p.from]; s == nil || p.from != judged && (s.host.Addr(p.src) != p.src || p.dst == p.src || p.dst.IsLoopback()) {
		return p, false
	}
	if (r.w.behind(p.from) || p.from == other || p.from == outside) && !r.w.leadsHere(p.from, p.dst) {
		return p, false // it goes by other ways
	}
	if r.w.behind(p.from) {
		p.ttl++ // so that it is 64 at the judged node, as trace takes it
	}
	if p.proto == netfilter.TCP {
		p.flags, p.ack = netfilter.SYN|netfilter.ACK, f.probe.id+1
	}
	r.made++
	return p, true
}

// answers sends answers to what has arrived and judges them. The rules are as they
// were; the connections are read.
func (r *round) answers(ctx context.Context, findings []*finding) ([]*finding, error) {
	var probes []probe
	asked := map[uint32]*finding{}
	for _, f := range findings {
		if p, ok := r.answer(f); ok && len(probes) < batchSize {
			probes = append(probes, p)
			asked[p.id] = f
		}
	}
	b, err := r.tracking(ctx)
	if err != nil {
		return nil, err
	}
	out, err := r.batch(b, probes)
	if err != nil {
		return nil, err
	}
	for _, f := range out {
		f.known = true
		r.compareReply(f, asked[f.probe.id])
	}
	return out, nil
}

// compareReply tells in what the answer to a probe, as trace foresaw it, differs
// from what happened to it. Trace foresees one way only, and does not know by which
// bridge port the answer comes; where that or chance decides, there is nothing to
// compare.
func (r *round) compareReply(f, first *finding) {
	if len(f.answer.Outcomes) != 1 {
		return
	}
	family := netfilter.FamilyOf(f.probe.dst)
	a := r.replies().Trace(r.flow(first.probe))
	var o *trace.Outcome
	for i := range a.Outcomes {
		if a.Outcomes[i].Reply != nil && first.sameWay(&a.Outcomes[i]) {
			o = &a.Outcomes[i]
		}
	}
	if o == nil {
		f.differ("trace foresees no answer to %v", first.probe)
		return
	}
	reply := o.Reply
	switch {
	case reply.Verdict == trace.Unknown:
		return
	case !reply.Passes:
		if len(f.way) > 0 || f.fact.verdict == trace.Output {
			f.differ("trace says that the answer does not pass this host: %s", reply.Reason)
		}
		return
	}
	if way, _ := r.bench.rules.ofTracer(family, reply.Steps); way.String() != pathOf(f.way).String() {
		f.differ("trace foresaw another way of the answer: %v", way)
	}
	switch {
	case reply.Verdict != f.fact.verdict && !f.fact.unheard:
		f.differ("trace foresaw %v: %s", reply.Verdict, reply.Reason)
	case f.fact.dst.IsValid() && (reply.Src != f.fact.src || reply.Dst != f.fact.dst):
		f.differ("trace foresaw %v > %v", reply.Src, reply.Dst)
	}
}

// replies is the tracer that also follows answers.
func (r *round) replies() *trace.Tracer {
	if r.both == nil {
		r.both = trace.New(r.bench.rules.host, trace.Options{Reply: true})
	}
	return r.both
}

// sameWay tells whether an outcome of another question is the one the kernel took.
func (f *finding) sameWay(o *trace.Outcome) bool {
	family := netfilter.FamilyOf(f.probe.dst)
	way, _ := f.rules.ofTracer(family, o.Steps)
	return way.String() == pathOf(f.way).String() && o.Src == f.outcome.Src && o.Dst == f.outcome.Dst && o.DstPort == f.outcome.DstPort
}
