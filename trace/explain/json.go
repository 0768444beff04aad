// Package explain puts a trace.Answer into words for people, into JSON for
// programs, and into a drawing.
package explain

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// APIVersion is the version of the JSON form.
const APIVersion = "portolan.io/v1"

// Answer is the JSON form of a trace.Answer. Shares of the outcomes sum to 1.
type Answer struct {
	APIVersion  string    `json:"apiVersion"`
	Flow        Flow      `json:"flow"`
	Outcomes    []Outcome `json:"outcomes"`
	Assumptions []string  `json:"assumptions"`
}

// Flow is the packet that was asked about. In is where it arrives, found by
// route if it was not given; ports are there as far as they were given.
type Flow struct {
	Src   string `json:"src"`
	Dst   string `json:"dst"`
	Proto string `json:"proto"`
	In    string `json:"in,omitempty"`
	Local bool   `json:"local"`
	Hook  string `json:"hook,omitempty"`
	Mark  uint32 `json:"mark"`
}

// Outcome is one thing that can happen. Src is an address, Dst has the port
// (except for icmp); SrcPort is left out while it is not known.
type Outcome struct {
	Probability float64  `json:"probability"`
	Share       string   `json:"share"`
	Certain     bool     `json:"certain"`
	Verdict     string   `json:"verdict"`
	Src         string   `json:"src"`
	SrcPort     uint16   `json:"srcPort,omitempty"`
	Dst         string   `json:"dst"`
	DNAT        bool     `json:"dnat"`
	Masquerade  bool     `json:"masquerade"`
	Service     string   `json:"service"`
	Reason      string   `json:"reason"`
	Doubts      []string `json:"doubts,omitempty"`
	Conditions  []string `json:"conditions,omitempty"`
	Hops        []Hop    `json:"hops"`
	Steps       []Step   `json:"steps"`
	Reply       *Reply   `json:"reply,omitempty"`
}

// Hop is the passage through a hook, with the packet as it enters.
type Hop struct {
	Hook    string `json:"hook"`
	In      string `json:"in,omitempty"`
	Out     string `json:"out,omitempty"`
	Src     string `json:"src"`
	Dst     string `json:"dst"`
	Mark    uint32 `json:"mark"`
	TTL     int    `json:"ttl"`
	Route   string `json:"route,omitempty"`
	Capture string `json:"capture,omitempty"`
}

// Step is a rule that matched. Rule counts from 1; 0 is the chain's policy.
type Step struct {
	Hook       string `json:"hook"`
	Table      string `json:"table"`
	Variant    string `json:"variant,omitempty"`
	Chain      string `json:"chain"`
	ChainName  string `json:"chainName,omitempty"`
	Rule       int    `json:"rule"`
	Text       string `json:"text"`
	Action     string `json:"action"`
	Target     string `json:"target,omitempty"`
	TargetName string `json:"targetName,omitempty"`
	Note       string `json:"note,omitempty"`
}

// Reply is what becomes of the answer.
type Reply struct {
	Verdict string `json:"verdict"`
	Passes  bool   `json:"passes"`
	Src     string `json:"src"`
	Dst     string `json:"dst"`
	Reason  string `json:"reason"`
}

// endpoint writes ADDRESS:PORT, or the address alone where there is no port.
func endpoint(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return "unknown"
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

func proto(n uint8) string { return strings.ReplaceAll(netfilter.ProtoName(n), " ", "-") }

// ToJSON gives the JSON form of an answer.
func ToJSON(t *trace.Tracer, a trace.Answer) Answer {
	f := a.Flow
	out := Answer{APIVersion: APIVersion, Assumptions: a.Assumptions, Outcomes: []Outcome{}}
	if out.Assumptions == nil {
		out.Assumptions = []string{}
	}
	out.Flow = Flow{Src: endpoint(f.Src, f.SrcPort), Dst: endpoint(f.Dst, f.DstPort), Proto: proto(f.Proto), In: a.In, Local: a.Entry == netfilter.Output, Hook: a.Entry.String(), Mark: f.Mark}
	for i := range a.Outcomes {
		out.Outcomes = append(out.Outcomes, outcome(t, &a.Outcomes[i]))
	}
	return out
}

// outcome is one of the answer, in the form that docs/stability.md promises.
func outcome(t *trace.Tracer, o *trace.Outcome) Outcome {
	p, _ := o.Share.Float64()
	out := Outcome{
		Probability: p, Share: o.Share.RatString(), Certain: o.Certain, Verdict: o.Verdict.String(),
		Src: endpoint(o.Src, 0), SrcPort: o.SrcPort, Dst: endpoint(o.Dst, o.DstPort), DNAT: o.DNAT, Masquerade: o.Masquerade,
		Service: o.Service, Reason: o.Reason, Doubts: o.Doubts, Conditions: o.Conditions, Hops: []Hop{}, Steps: []Step{},
	}
	for i, h := range o.Hops {
		out.Hops = append(out.Hops, Hop{Hook: h.Hook.String(), In: h.In, Out: h.Out, Src: endpoint(h.Src, h.SrcPort), Dst: endpoint(h.Dst, h.DstPort), Mark: h.Mark, TTL: h.TTL, Route: h.Route, Capture: Capture(o, i)})
	}
	for _, s := range o.Steps {
		x := Step{Hook: s.Hook.String(), Table: s.Table, Chain: s.Chain, Rule: s.Rule, Text: s.Text, Action: s.Action.String(), Target: s.Target, Note: s.Note}
		if s.Variant != netfilter.Unstated {
			x.Variant = s.Variant.String()
		}
		x.ChainName = name(t, o, s, s.Chain)
		if s.Action == trace.ActJump || s.Action == trace.ActGoto {
			x.TargetName = name(t, o, s, s.Target)
		}
		out.Steps = append(out.Steps, x)
	}
	if r := o.Reply; r != nil {
		out.Reply = &Reply{Verdict: r.Verdict.String(), Passes: r.Passes, Src: endpoint(r.Src, r.SrcPort), Dst: endpoint(r.Dst, r.DstPort), Reason: r.Reason}
	}
	return out
}

func name(t *trace.Tracer, o *trace.Outcome, s trace.Step, chain string) string {
	return t.ChainName(netfilter.FamilyOf(o.Dst), s.Variant, s.Table, chain)
}

// JSON writes the JSON form, indented.
func JSON(t *trace.Tracer, a trace.Answer) ([]byte, error) {
	b, err := json.MarshalIndent(ToJSON(t, a), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("explain: writing the answer as JSON: %w", err)
	}
	return append(b, '\n'), nil
}

// Capture is the tcpdump command that shows the packet nearest to a hop: on
// the arrival interface as it came in, before routing or if it never leaves;
// on the output interface as it leaves, after routing. "" where it is on no
// interface that is known.
func Capture(o *trace.Outcome, hop int) string {
	h := o.Hops[hop]
	var dev string
	var src, dst netip.Addr
	var sport, dport uint16
	last := hop
	for last+1 < len(o.Hops) && o.Hops[last].Hook != netfilter.Postrouting {
		last++
	}
	stays := o.Hops[last].Hook != netfilter.Postrouting || (last+1 == len(o.Hops) && o.Verdict.Lost())
	if h.Hook == netfilter.Prerouting || h.Hook == netfilter.Input || stays {
		first := hop
		for first > 0 && o.Hops[first].Hook != netfilter.Prerouting {
			first--
		}
		f := o.Hops[first]
		dev, src, dst, sport, dport = f.In, f.Src, f.Dst, f.SrcPort, f.DstPort
	} else {
		dev = o.Hops[last].Out
		src, dst, sport, dport = o.Src, o.Dst, o.SrcPort, o.DstPort
		if last+1 < len(o.Hops) {
			f := o.Hops[last+1]
			src, dst, sport, dport = f.Src, f.Dst, f.SrcPort, f.DstPort
		}
	}
	if dev == "" || dev == "?" {
		return ""
	}
	return "tcpdump -ni " + dev + " '" + filter(o.Proto, src, dst, sport, dport) + "'"
}

// filter is an expression of tcpdump for the packet as it is at one hook.
func filter(p uint8, src, dst netip.Addr, sport, dport uint16) string {
	var parts []string
	switch p {
	case netfilter.TCP, netfilter.UDP, netfilter.SCTP, netfilter.ICMP:
		parts = append(parts, netfilter.ProtoName(p))
	case netfilter.ICMPv6:
		parts = append(parts, "icmp6")
	default:
		parts = append(parts, fmt.Sprintf("ip proto %d", p))
	}
	if src.IsValid() {
		parts = append(parts, "src host "+src.String())
	}
	if sport != 0 {
		parts = append(parts, fmt.Sprintf("src port %d", sport))
	}
	if dst.IsValid() {
		parts = append(parts, "dst host "+dst.String())
	}
	if dport != 0 {
		parts = append(parts, fmt.Sprintf("dst port %d", dport))
	}
	return strings.Join(parts, " and ")
}
