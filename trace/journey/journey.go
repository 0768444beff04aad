// Package journey follows a packet from host to host: what leaves one for an address
// of another arrives there, over a plain link or within a tunnel, until it is
// delivered, lost, or leaves the hosts that are known. It is pure, as package trace.
package journey

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"

	"portolan/netfilter"
	"portolan/trace"
)

// Node is one host.
type Node struct {
	Name   string
	Tracer *trace.Tracer // must follow replies (trace.Options.Reply)
}

// Story is all that can become of a flow. Shares of the ways sum to 1.
type Story struct {
	Flow        trace.Flow
	Start       string // the node it comes to first
	Ways        []Way  // the likely ones first
	Assumptions []string
}

// Way is one way that the packet can take.
type Way struct {
	Share *big.Rat
	Legs  []Leg
	// Lost tells why a packet that left a node did not come to the next one, "" if it
	// did. Beyond says that it is not lost, but goes to a node that nothing is known of.
	Lost   string
	Beyond bool
	// Answered tells whether the client gets an answer that it knows; Back says how it
	// comes back, or what becomes of it.
	Answered bool
	Back     string
}

// Leg is the passage through one node.
type Leg struct {
	Node   string
	Tracer *trace.Tracer
	Flow   trace.Flow // as it comes to the node
	Over   string     // how it came from the node before, "" for the first
	// Outer is the way of the packet that carried it through a tunnel, on the node
	// before and on this one.
	Outer   []trace.Answer
	Outcome trace.Outcome
}

// Last is the passage through the node where the way ends.
func (w *Way) Last() *Leg { return &w.Legs[len(w.Legs)-1] }

// Verdict is what becomes of the packet in the end.
func (w *Way) Verdict() trace.Verdict {
	switch {
	case w.Beyond:
		return trace.Unknown
	case w.Lost != "":
		return trace.Dropped
	}
	return w.Last().Outcome.Verdict
}

// Certain tells whether nothing on the way is in doubt.
func (w *Way) Certain() bool {
	return !w.Beyond && !slices.ContainsFunc(w.Legs, func(l Leg) bool { return !l.Outcome.Certain })
}

// mostLegs bounds how often a packet is sent on.
const mostLegs = 8

// Follow follows a flow that comes first to the node called at; without a name that is
// the node that has the source, or the pods of its network, else the one that has the
// destination.
func Follow(nodes []Node, f trace.Flow, at string) (Story, error) {
	m := &mapping{}
	for _, n := range nodes {
		m.nodes = append(m.nodes, place{n, netfilter.NewFIB(n.Tracer.Host())})
	}
	start, in, err := m.start(f, at)
	if err != nil {
		return Story{}, err
	}
	if f.In == "" && !f.Local && f.Hook == netfilter.NoHook {
		f.In = in
	}
	w := &walker{mapping: m, story: Story{Flow: f, Start: start.Name}}
	w.follow(start, f, Way{Share: big.NewRat(1, 1)}, Leg{})
	slices.SortStableFunc(w.story.Ways, func(a, b Way) int { return b.Share.Cmp(a.Share) })
	for i := range w.story.Ways {
		m.back(f, &w.story.Ways[i])
	}
	return w.story, nil
}

// walker collects ways.
type walker struct {
	*mapping
	story Story
}

// follow follows what comes to a node, after the legs of a way; how tells how it came.
func (w *walker) follow(n *place, f trace.Flow, way Way, how Leg) {
	a := n.Tracer.Trace(f)
	w.assume(n, a)
	for i := range a.Outcomes {
		o := a.Outcomes[i]
		if o.Share.Sign() == 0 {
			continue
		}
		leg := how
		leg.Node, leg.Tracer, leg.Flow, leg.Outcome = n.Name, n.Tracer, f, o
		on := Way{Share: new(big.Rat).Mul(way.Share, o.Share), Legs: append(slices.Clone(way.Legs), leg)}
		w.next(n, on)
	}
}

// next sends a packet on to where it goes after its last leg.
func (w *walker) next(n *place, way Way) {
	o := &way.Last().Outcome
	if o.Verdict != trace.Forwarded && o.Verdict != trace.Output || o.Out == "" || o.Out == "?" {
		w.story.Ways = append(w.story.Ways, way)
		return
	}
	to, ok := w.from(n, o)
	if !ok || len(way.Legs) == mostLegs {
		if len(way.Legs) == mostLegs {
			way.Lost = fmt.Sprintf("it goes round: %d nodes have sent it on", mostLegs)
		}
		way.Lost, way.Beyond = way.Lost+to.lost, to.lost != ""
		w.story.Ways = append(w.story.Ways, way)
		return
	}
	leg := Leg{Over: to.over}
	if to.outer.Dst.IsValid() {
		out, lost := w.carry(n, to, o.Mark)
		leg.Outer = out
		if lost != "" {
			way.Lost = lost
			w.story.Ways = append(w.story.Ways, way)
			return
		}
	}
	if to.remark != "" {
		w.remark(to.remark)
	}
	f := trace.Flow{Src: o.Src, SrcPort: o.SrcPort, Dst: o.Dst, DstPort: o.DstPort, Proto: o.Proto, In: to.in}
	if len(o.Hops) > 0 {
		f.TTL = uint8(o.Hops[len(o.Hops)-1].TTL)
	}
	w.follow(to.node, f, way, leg)
}

// carry follows the packet that a tunnel makes of another one. The mark is that of the
// packet within. lost tells why it does not arrive, "" if it does.
func (w *walker) carry(from *place, to passage, mark uint32) (out []trace.Answer, lost string) {
	outer := to.outer
	outer.Mark = mark
	a := from.Tracer.Trace(outer)
	w.assume(from, a)
	o := &a.Outcomes[0]
	if o.Verdict != trace.Output {
		return []trace.Answer{a}, fmt.Sprintf("the packet of the tunnel, %v, does not leave %s: %s", outer, from.Name, o.Reason)
	}
	arriving := trace.Flow{Src: o.Src, SrcPort: o.SrcPort, Dst: o.Dst, DstPort: o.DstPort, Proto: o.Proto, In: to.outerIn}
	b := to.node.Tracer.Trace(arriving)
	w.assume(to.node, b)
	if o := &b.Outcomes[0]; o.Verdict != trace.Input {
		lost = fmt.Sprintf("the packet of the tunnel, %v, does not come to %s: %s", arriving, to.node.Name, o.Reason)
	}
	return []trace.Answer{a, b}, lost
}

func (w *walker) assume(n *place, a trace.Answer) {
	for _, text := range a.Assumptions {
		w.remark(n.Name + ": " + text)
	}
}

func (w *walker) remark(text string) {
	if !slices.Contains(w.story.Assumptions, text) {
		w.story.Assumptions = append(w.story.Assumptions, text)
	}
}

// sameAddr tells whether an address is valid and another one.
func sameAddr(a, b netip.Addr) bool { return a.IsValid() && a == b }
