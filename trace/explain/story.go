package explain

import (
	"fmt"
	"math/big"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
	"portolan/trace/journey"
)

// StoryText writes what becomes of a packet over several nodes for a person: one line
// first, then every way that differs in more than its endpoint, the ends with their
// shares, and what was assumed.
func StoryText(s journey.Story) string {
	w := &writer{}
	w.line("%s", storyHeadline(s))
	seen := map[string]bool{}
	for i := range s.Ways {
		way := &s.Ways[i]
		if k := waySignature(way); !seen[k] {
			seen[k] = true
			w.way(way, len(s.Ways) > 1)
		}
	}
	w.line("\nOutcomes")
	for i := range s.Ways {
		w.wayEnd(&s.Ways[i])
	}
	if len(s.Assumptions) > 0 {
		w.line("\nAssumptions")
		for _, text := range s.Assumptions {
			w.line("  - %s", text)
		}
	}
	return w.b.String()
}

// storyHeadline sums up what becomes of the packet, over all ways.
func storyHeadline(s journey.Story) string {
	shares := map[string]*big.Rat{}
	var order []string
	certain := ""
	for i := range s.Ways {
		verdict := s.Ways[i].Verdict().String()
		if shares[verdict] == nil {
			shares[verdict] = new(big.Rat)
			order = append(order, verdict)
		}
		shares[verdict].Add(shares[verdict], s.Ways[i].Share)
		if w := &s.Ways[i]; !w.Certain() && !w.Beyond {
			certain = "uncertain: "
		}
	}
	if len(order) > 1 {
		for i, v := range order {
			order[i] = percent(shares[v]) + " " + v
		}
	}
	what := endpoint(s.Flow.Src, s.Flow.SrcPort) + " -> " + endpoint(s.Flow.Dst, s.Flow.DstPort) + " " + netfilter.ProtoName(s.Flow.Proto)
	return fmt.Sprintf("%s%s: %s, first by %s", certain, strings.Join(order, ", "), what, s.Start)
}

// waySignature is equal for ways that differ in the endpoint only.
func waySignature(w *journey.Way) string {
	var b strings.Builder
	for i := range w.Legs {
		b.WriteString(w.Legs[i].Node + signature(&w.Legs[i].Outcome) + w.Legs[i].Over + "\n")
	}
	return b.String() + w.Lost
}

// way writes one way, node by node; of several it says first which.
func (w *writer) way(way *journey.Way, several bool) {
	if several {
		o := &way.Last().Outcome
		w.line("\nThe way to %s:", endpoint(o.Dst, o.DstPort))
	} else {
		w.line("")
	}
	for i := range way.Legs {
		leg := &way.Legs[i]
		if leg.Over != "" {
			w.line("  over: %s", leg.Over)
			w.outer(leg.Outer)
		}
		w.line("%s", leg.Node)
		w.t = leg.Tracer
		for k, h := range leg.Outcome.Hops {
			w.hop(&leg.Outcome, k, h)
		}
		w.line("  => %s", leg.Outcome.Reason)
	}
	if way.Lost != "" {
		w.line("  then: %s", way.Lost)
	}
	if way.Back != "" {
		w.line("  answer: %s", way.Back)
	}
}

// outer tells of the packet that a tunnel makes.
func (w *writer) outer(list []trace.Answer) {
	if len(list) == 0 {
		return
	}
	o := &list[0].Outcomes[0]
	w.line("      which passes %s here, and %s there; %d bytes are added to it", hookNames(o), hookNames(&list[len(list)-1].Outcomes[0]), tunnelBytes(o))
	w.line("      see it: %s", Capture(o, len(o.Hops)-1))
}

// tunnelBytes is what vxlan adds to a packet: an IP, a UDP and a vxlan header, and the
// Ethernet header of what is within (RFC 7348).
func tunnelBytes(o *trace.Outcome) int {
	if o.Dst.Is6() {
		return 40 + 8 + 8 + 14
	}
	return 20 + 8 + 8 + 14
}

func hookNames(o *trace.Outcome) string {
	var list []string
	for _, h := range o.Hops {
		list = append(list, strings.ToUpper(h.Hook.String()))
	}
	return strings.Join(list, " and ")
}

// wayEnd writes how the way ends and what the other end sees.
func (w *writer) wayEnd(way *journey.Way) {
	o := &way.Last().Outcome
	share := way.Share.RatString()
	if !way.Certain() && !way.Beyond {
		share += "?"
	}
	src := "seen as " + endpoint(o.Src, 0)
	answer := "answered"
	switch {
	case way.Verdict().Lost():
		answer = "lost"
	case way.Beyond:
		answer = "goes on to another node"
	case !way.Answered:
		answer = "the answer is lost"
	}
	w.line("  %-6s %-7s %-8s %-22s on %s, %s, %s", share, percent(way.Share), way.Verdict(), endpoint(o.Dst, o.DstPort), way.Last().Node, src, answer)
}

// Story is the JSON form of a journey.Story. Shares of the ways sum to 1.
type Story struct {
	APIVersion  string   `json:"apiVersion"`
	Flow        Flow     `json:"flow"`
	Start       string   `json:"start"` // the node it comes to first
	Ways        []Way    `json:"ways"`
	Assumptions []string `json:"assumptions"`
}

// Way is one way over nodes. Verdict, Src and Dst are those of its end, on Node.
type Way struct {
	Probability float64 `json:"probability"`
	Share       string  `json:"share"`
	Certain     bool    `json:"certain"`
	Verdict     string  `json:"verdict"`
	Node        string  `json:"node"`
	Src         string  `json:"src"`
	Dst         string  `json:"dst"`
	Service     string  `json:"service"`
	Lost        string  `json:"lost,omitempty"`
	Answered    bool    `json:"answered"`
	Back        string  `json:"back,omitempty"`
	Legs        []Leg   `json:"legs"`
}

// Leg is the passage through one node. Over says how the packet came there, and Outer
// has the packets of the tunnel, as they leave the node before and come to this one.
type Leg struct {
	Node    string   `json:"node"`
	Over    string   `json:"over,omitempty"`
	Outer   []Answer `json:"outer,omitempty"`
	Outcome Outcome  `json:"outcome"`
}

// StoryJSON gives the JSON form of a story.
func StoryJSON(s journey.Story) Story {
	head := ToJSON(nil, trace.Answer{Flow: s.Flow})
	out := Story{APIVersion: APIVersion, Flow: head.Flow, Start: s.Start, Ways: []Way{}, Assumptions: append([]string{}, s.Assumptions...)}
	out.Flow.Hook, out.Flow.Local = "", s.Flow.Local
	for i := range s.Ways {
		way := &s.Ways[i]
		o := &way.Last().Outcome
		p, _ := way.Share.Float64()
		x := Way{Probability: p, Share: way.Share.RatString(), Certain: way.Certain(), Verdict: way.Verdict().String(), Node: way.Last().Node,
			Src: endpoint(o.Src, 0), Dst: endpoint(o.Dst, o.DstPort), Lost: way.Lost, Answered: way.Answered, Back: way.Back}
		for k := range way.Legs {
			leg := &way.Legs[k]
			if x.Service == "" {
				x.Service = leg.Outcome.Service
			}
			one := Leg{Node: leg.Node, Over: leg.Over, Outcome: outcome(leg.Tracer, &leg.Outcome)}
			for _, a := range leg.Outer {
				one.Outer = append(one.Outer, ToJSON(leg.Tracer, a))
			}
			x.Legs = append(x.Legs, one)
		}
		out.Ways = append(out.Ways, x)
	}
	return out
}
