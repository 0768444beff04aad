package explain

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// Text writes an answer for a person who has never seen a KUBE-SEP chain: the
// verdict in one line, the hops, the endpoints with their shares, the reply,
// what was assumed.
func Text(t *trace.Tracer, a trace.Answer) string {
	w := &writer{t: t, a: a}
	w.line("%s", Headline(a))
	seen := map[string]bool{}
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		k := signature(o)
		if seen[k] || (o.Share.Sign() == 0 && i > 0) {
			continue
		}
		seen[k] = true
		w.walk(o, i)
	}
	w.endpoints()
	w.reply()
	w.assumptions()
	return w.b.String()
}

// writer writes one answer in words.
type writer struct {
	t *trace.Tracer
	a trace.Answer
	b strings.Builder
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// signature is equal for outcomes that take the same way but for the last
// chain.
func signature(o *trace.Outcome) string {
	var b strings.Builder
	fmt.Fprint(&b, o.Verdict, o.Certain, o.Masquerade, o.DNAT)
	for _, h := range o.Hops {
		fmt.Fprint(&b, " ", h.Hook, h.In, h.Out)
	}
	if o.Verdict.Lost() {
		b.WriteString(o.Reason)
	}
	return b.String()
}

// Headline says what becomes of the packet, in one line that begins with the
// verdict.
func Headline(a trace.Answer) string {
	verdicts, shares := byVerdict(a)
	what := endpoint(a.Flow.Src, a.Flow.SrcPort) + " -> " + endpoint(a.Flow.Dst, a.Flow.DstPort) + " " + netfilter.ProtoName(a.Flow.Proto)
	if len(verdicts) == 1 && a.Certain() {
		return verdicts[0].String() + ": " + what + sentence(a)
	}
	var parts []string
	for _, v := range verdicts {
		parts = append(parts, percent(shares[v])+" "+v.String())
	}
	head := strings.Join(parts, ", ") + ": " + what
	if !a.Certain() {
		for _, o := range a.Outcomes {
			if len(o.Doubts) > 0 {
				return "uncertain: " + head + " (" + o.Doubts[0] + ")"
			}
		}
		return "uncertain: " + head + " (" + a.Outcomes[0].Reason + ")"
	}
	return head + sentence(a)
}

// byVerdict adds up shares, in the order in which verdicts come.
func byVerdict(a trace.Answer) ([]trace.Verdict, map[trace.Verdict]*big.Rat) {
	var order []trace.Verdict
	shares := map[trace.Verdict]*big.Rat{}
	for _, o := range a.Outcomes {
		if o.Share.Sign() == 0 {
			continue
		}
		if shares[o.Verdict] == nil {
			shares[o.Verdict] = new(big.Rat)
			order = append(order, o.Verdict)
		}
		shares[o.Verdict].Add(shares[o.Verdict], o.Share)
	}
	return order, shares
}

func percent(r *big.Rat) string {
	f, _ := r.Float64()
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", 100*f), "0"), ".") + "%"
}

// sentence says where the packet ends.
func sentence(a trace.Answer) string {
	ends := targets(a)
	o := a.Outcomes[0]
	svc := ""
	if o.Service != "" {
		svc = " of " + o.Service
	}
	switch {
	case o.Verdict.Lost() || o.Verdict == trace.Unknown:
		return ": " + o.Reason
	case len(ends) > 1:
		return fmt.Sprintf(" goes to one of %d endpoints%s%s", len(ends), svc, from(o))
	case o.DNAT:
		return fmt.Sprintf(" reaches %s, an endpoint%s%s", ends[0], svc, from(o))
	case o.Verdict == trace.Input:
		return " is delivered to a local process" + from(o)
	}
	if o.Masquerade {
		return " goes on to its destination" + from(o)
	}
	return " goes on unchanged to its destination"
}

func from(o trace.Outcome) string {
	if o.Masquerade {
		return ", which sees " + endpoint(o.Src, 0) + " as the client"
	}
	if o.DNAT {
		return ", which sees the client's own address"
	}
	return ""
}

// targets are the different destinations of outcomes that have a share.
func targets(a trace.Answer) []string {
	var out []string
	for _, o := range a.Outcomes {
		if d := endpoint(o.Dst, o.DstPort); o.Share.Sign() > 0 && !o.Verdict.Lost() && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// walk prints the hops of one outcome.
func (w *writer) walk(o *trace.Outcome, n int) {
	w.line("")
	switch {
	case n == 0 && len(w.a.Outcomes) == 1:
	case len(o.Conditions) > 0:
		w.line("If %s:", strings.Join(o.Conditions, " and "))
	case len(o.Doubts) > 0:
		w.line("One possibility, %s to %s (not certain: %s):", o.Verdict, endpoint(o.Dst, o.DstPort), strings.Join(o.Doubts, "; "))
	default:
		w.line("The way to %s:", endpoint(o.Dst, o.DstPort))
	}
	for i, h := range o.Hops {
		w.hop(o, i, h)
	}
	w.line("  => %s", o.Reason)
}

// hop writes one hook: where the packet is, and what rules did to it.
func (w *writer) hop(o *trace.Outcome, i int, h trace.Hop) {
	if h.Route != "" {
		w.line("    %s", h.Route)
	}
	where := []string{strings.ToUpper(h.Hook.String())}
	if h.In != "" {
		where = append(where, "in "+dev(h.In))
	}
	if h.Out != "" {
		where = append(where, "out "+dev(h.Out))
	}
	mark := ""
	if h.Mark != 0 {
		mark = fmt.Sprintf(", mark 0x%x", h.Mark)
	}
	w.line("%3d %s: %s -> %s%s", i+1, strings.Join(where, ", "), endpoint(h.Src, h.SrcPort), endpoint(h.Dst, h.DstPort), mark)
	quiet := true
	for _, s := range o.Steps {
		if s.Hop == i {
			w.step(o, s)
			quiet = false
		}
	}
	if quiet {
		w.line("      no rule matches")
	}
	if c := Capture(o, i); c != "" {
		w.line("      see it: %s", c)
	}
}

func dev(name string) string {
	if name == "?" {
		return "(interface not known)"
	}
	return name
}

// step prints a matched rule in one line, and its meaning in a second one
// where the rule does not say it.
func (w *writer) step(o *trace.Outcome, s trace.Step) {
	table := s.Table
	if s.Variant != netfilter.Unstated && s.Variant != netfilter.Native && w.bothVariants() {
		table += "(" + s.Variant.String() + ")"
	}
	chain := s.Chain
	if n := name(w.t, o, s, s.Chain); n != "" {
		chain = n
	}
	text := w.does(o, s)
	if s.Comment != "" {
		text += "  # " + s.Comment
	}
	if s.Rule == 0 {
		w.line("      %s %s, end of chain: %s", table, chain, text)
		return
	}
	w.line("      %s %s rule %d: %s", table, chain, s.Rule, text)
	if s.Note != "" {
		w.line("          %s", s.Note)
	}
}

// bothVariants reports whether iptables tables are of more than one variant.
func (w *writer) bothVariants() bool {
	var first *netfilter.Table
	for _, t := range w.t.Host().Tables {
		switch {
		case t.Variant == netfilter.Native:
		case first == nil:
			first = t
		case t.Variant != first.Variant:
			return true
		}
	}
	return false
}

// does says what a step does.
func (w *writer) does(o *trace.Outcome, s trace.Step) string {
	switch s.Action {
	case trace.ActCount:
		return "counts"
	case trace.ActJump, trace.ActGoto:
		verb := map[trace.Action]string{trace.ActJump: "on to ", trace.ActGoto: "for good to "}[s.Action]
		if n := name(w.t, o, s, s.Target); n != "" {
			return verb + n + " [" + s.Target + "]"
		}
		return verb + s.Target
	case trace.ActReturn:
		return "back to the caller"
	case trace.ActDNAT, trace.ActRedirect:
		return "new destination " + s.Target
	case trace.ActSNAT:
		return "new source " + s.Target
	case trace.ActMasquerade:
		return "new source " + s.Target + ", the address of the outgoing interface"
	case trace.ActMark:
		return "mark is now " + s.Target
	case trace.ActReject:
		return "reject with " + s.Target
	case trace.ActPolicy:
		return "policy " + s.Target
	case trace.ActContinue:
		if s.Variant == netfilter.Native && s.Target != "" {
			return s.Target
		}
		return strings.TrimSpace(s.Action.String() + " " + s.Target)
	case trace.ActQueue, trace.ActTProxy, trace.ActNetmap, trace.ActUnknown:
		return strings.TrimSpace(s.Action.String() + " " + s.Target)
	}
	return s.Action.String()
}

// endpoints prints the table of outcomes, when there is more than one.
func (w *writer) endpoints() {
	if len(w.a.Outcomes) == 0 {
		return
	}
	w.line("\nOutcomes")
	for _, o := range w.a.Outcomes {
		src := "client's own source"
		if o.Masquerade {
			src = "source " + endpoint(o.Src, 0)
		}
		svc := o.Service
		if svc == "" {
			svc = "-"
		}
		share := o.Share.RatString()
		switch {
		case len(o.Conditions) > 0:
			share = "if"
		case !o.Certain:
			share += "?"
		}
		more := ""
		if len(o.Conditions) > 0 {
			more = "  when " + strings.Join(o.Conditions, " and ")
		}
		w.line("  %-6s %-7s %-8s %-22s %s, %s%s", share, percent(o.Share), o.Verdict, endpoint(o.Dst, o.DstPort), svc, src, more)
	}
}

// reply prints what becomes of the answer, once for equal ones.
func (w *writer) reply() {
	seen := map[string]bool{}
	for _, o := range w.a.Outcomes {
		r := o.Reply
		if r == nil {
			continue
		}
		var text string
		switch {
		case !r.Passes:
			text = r.Reason
		case r.Verdict.Lost() || r.Verdict == trace.Unknown:
			text = r.Verdict.String() + ": " + r.Reason
		default:
			text = fmt.Sprintf("comes back as %s -> %s (%s)", endpoint(r.Src, r.SrcPort), endpoint(r.Dst, r.DstPort), r.Verdict)
			if mismatch(w.a.Flow, r) {
				text += ": not the address the client asked, it does not accept this"
			}
		}
		if seen[text] {
			continue
		}
		if len(seen) == 0 {
			w.line("\nReply")
		}
		seen[text] = true
		w.line("  %s", text)
	}
}

func mismatch(f trace.Flow, r *trace.Reply) bool {
	return r.Src != f.Dst || (r.Dst.IsValid() && r.Dst != f.Src && f.Src != netip.Addr{})
}

func (w *writer) assumptions() {
	if len(w.a.Assumptions) == 0 {
		return
	}
	w.line("\nAssumptions")
	for _, s := range w.a.Assumptions {
		w.line("  - %s", s)
	}
}
