package explain

import (
	"fmt"
	"math/big"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// Dot draws an answer for Graphviz: one node for each chain at each hook, one
// for each end, and edges that carry the share of the packets that take them.
func Dot(t *trace.Tracer, a trace.Answer) string {
	g := &graph{t: t, nodes: map[string]bool{}, shares: map[string]*big.Rat{}}
	start := g.node("packet", fmt.Sprintf("%s -> %s\n%s", endpoint(a.Flow.Src, a.Flow.SrcPort), endpoint(a.Flow.Dst, a.Flow.DstPort), netfilter.ProtoName(a.Flow.Proto)), "box")
	for i := range a.Outcomes {
		g.outcome(start, &a.Outcomes[i])
	}
	var b strings.Builder
	b.WriteString("digraph trace {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=10];\n")
	for _, l := range g.lines {
		b.WriteString("  " + l + "\n")
	}
	for _, e := range g.edges {
		fmt.Fprintf(&b, "  %s [label=%q];\n", e, g.shares[e].RatString())
	}
	b.WriteString("}\n")
	return b.String()
}

type graph struct {
	t      *trace.Tracer
	nodes  map[string]bool
	lines  []string
	edges  []string
	shares map[string]*big.Rat
}

func (g *graph) node(id, label, shape string) string {
	if !g.nodes[id] {
		g.nodes[id] = true
		g.lines = append(g.lines, fmt.Sprintf("%q [label=%q, shape=%s];", id, label, shape))
	}
	return id
}

func (g *graph) edge(from, to string, share *big.Rat) {
	e := fmt.Sprintf("%q -> %q", from, to)
	if g.shares[e] == nil {
		g.shares[e] = new(big.Rat)
		g.edges = append(g.edges, e)
	}
	g.shares[e].Add(g.shares[e], share)
}

// outcome adds the way of one outcome, with its share.
func (g *graph) outcome(start string, o *trace.Outcome) {
	at := start
	passed := map[string]bool{}
	visit := func(id string) {
		// Each outcome passes an edge once, however often it comes by.
		if e := at + "\x00" + id; at != id && !passed[e] {
			passed[e] = true
			g.edge(at, id, o.Share)
		}
		at = id
	}
	for i, h := range o.Hops {
		hook := g.node(fmt.Sprintf("hook %d %s %s %s", i, h.Hook, h.In, h.Out), strings.TrimSpace(strings.ToUpper(h.Hook.String())+" "+h.In+"/"+h.Out), "cds")
		visit(hook)
		for _, s := range o.Steps {
			if s.Hop != i {
				continue
			}
			label := s.Table + " " + s.Chain
			if n := name(g.t, o, s, s.Chain); n != "" {
				label = n
			}
			visit(g.node(fmt.Sprintf("%d %s %s %s", i, s.Variant, s.Table, s.Chain), label, "ellipse"))
		}
	}
	visit(g.node("end "+o.Verdict.String()+" "+endpoint(o.Src, 0)+endpoint(o.Dst, o.DstPort), fmt.Sprintf("%s\n%s", o.Verdict, endpoint(o.Dst, o.DstPort)), "box"))
}
