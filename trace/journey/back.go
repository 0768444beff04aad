package journey

import (
	"fmt"
	"net/netip"

	"portolan/netfilter"
	"portolan/trace"
)

// back follows the answer through the nodes that the packet came by. Each may have
// translated it, and only that one can translate the answer back.
func (m *mapping) back(f trace.Flow, w *Way) {
	if w.Lost != "" || w.Last().Outcome.Verdict.Lost() || w.Last().Outcome.Verdict == trace.Unknown {
		return
	}
	for i := len(w.Legs) - 1; ; i-- {
		leg := &w.Legs[i]
		r := leg.Outcome.Reply
		if r == nil {
			w.Answered, w.Back = true, "nothing is known of the answer"
			return
		}
		if !r.Passes {
			w.Answered, w.Back = !translated(w.Legs[:i+1]), fmt.Sprintf("the answer does not pass %s: %s", leg.Node, r.Reason)
			return
		}
		if r.Verdict.Lost() || r.Verdict == trace.Unknown {
			w.Back = fmt.Sprintf("the answer is lost on %s: %s", leg.Node, r.Reason)
			return
		}
		if i == 0 {
			w.Answered = r.Src == f.Dst && r.Dst == f.Src
			w.Back = fmt.Sprintf("comes back as %s -> %s", end(r.Src, r.SrcPort), end(r.Dst, r.DstPort))
			if !w.Answered {
				w.Back += ": not what the client has asked, it does not take this for an answer"
			}
			return
		}
		if before := &w.Legs[i-1]; !m.returns(leg, before, r) {
			w.Answered = !translated(w.Legs[:i])
			w.Back = fmt.Sprintf("%s sends the answer %s -> %s past %s", leg.Node, end(r.Src, r.SrcPort), end(r.Dst, r.DstPort), before.Node)
			if !w.Answered {
				w.Back += ", which alone could translate it back: the client does not know it"
			}
			return
		}
	}
}

// returns tells whether an answer goes from one node to the one that the packet came
// from.
func (m *mapping) returns(leg, before *Leg, r *trace.Reply) bool {
	if n, _ := m.owner(r.Dst); n != nil && n.Name == before.Node {
		return true
	}
	for i := range m.nodes {
		if n := &m.nodes[i]; n.Name == leg.Node {
			out := n.fib.Lookup(netfilter.Question{Dst: r.Dst})
			to, ok := m.from(n, &trace.Outcome{Dst: r.Dst, Out: out.Dev})
			return ok && to.node.Name == before.Node
		}
	}
	return false
}

// translated tells whether one of some nodes has changed an address.
func translated(legs []Leg) bool {
	for i := range legs {
		if o := &legs[i].Outcome; o.DNAT || o.Masquerade {
			return true
		}
	}
	return false
}

// end writes ADDRESS:PORT, or the address alone where the port is not known.
func end(a netip.Addr, port uint16) string {
	if port == 0 {
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}
