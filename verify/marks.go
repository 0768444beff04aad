package verify

import (
	"fmt"

	"portolan/netfilter"
	"portolan/trace"
)

// checkMarks finds rules of others that change the bit that has packets
// masqueraded, where it matters: behind the rules that set it.
func checkMarks(w *world) (out []Finding) {
	if len(w.proxies) == 0 {
		return nil
	}
	for at, rule := range w.host.Rules() {
		text, ok := w.changesMark(rule)
		if !ok {
			continue
		}
		s := trace.Step{Table: at.Table.Name, Variant: at.Table.Variant, Chain: at.Chain.Name, Rule: at.Number, Comment: rule.Comment(), Text: rule.Text}
		owner := w.ownerOfStep(&s)
		if owner.isProxy() || owner.Name == "kubelet" || !w.behindMark(at.Table, at.Chain) {
			continue
		}
		out = append(out, Finding{
			Code: MarkCollision, Severity: Warning, Object: ruleName(&s), Owner: owner,
			Actual:   fmt.Sprintf("%s %s bit 0x%x, by which Services know what to masquerade", owner.Name, text, w.in.Mark),
			Expected: "nobody else changes that bit between PREROUTING and POSTROUTING",
			Fix:      fmt.Sprintf("give %s other bits, or Services another one (masqueradeBit)", owner.Name),
		})
	}
	return out
}

// changesMark tells whether a rule may change the masquerade bit, and how.
func (w *world) changesMark(r *netfilter.Rule) (how string, ok bool) {
	bit := w.in.Mark
	switch t := r.Target.(type) {
	case netfilter.SetMark:
		switch {
		case (t.Mask|t.Value)&bit == 0:
		case t.Value&bit != 0:
			return "sets", true
		default:
			return "clears", true
		}
	case netfilter.SetConnMark:
		if t.Op == netfilter.ConnMarkRestore && t.NFMask&bit != 0 {
			return "restores from the connection", true
		}
	case netfilter.TProxy:
		if (t.Mask|t.Value)&bit != 0 {
			return "sets", true
		}
	}
	for _, s := range r.Statements {
		if a, is := s.(netfilter.Assign); is && a.To.Selector == netfilter.MetaMark && !keepsBit(a.Value, bit) {
			return "changes", true
		}
	}
	return "", false
}

// keepsBit tells whether a new value of the mark has the bit just when the old one
// had it.
func keepsBit(e netfilter.Expr, bit uint32) bool {
	without, ok := markValue(e, 0)
	with, ok2 := markValue(e, bit)
	return ok && ok2 && without&bit == 0 && with&bit != 0
}

// markValue is the value of an expression for a mark; ok is false when it depends
// on more than that.
func markValue(e netfilter.Expr, mark uint32) (n uint32, ok bool) {
	switch e := e.(type) {
	case netfilter.Selected:
		return mark, e.Selector == netfilter.MetaMark
	case netfilter.Constant:
		return uint32(netfilter.Number(e.First)), !e.IsRange()
	case netfilter.Bitwise:
		a, ok := markValue(e.Left, mark)
		b, ok2 := markValue(e.Right, mark)
		switch e.Op {
		case '&':
			a &= b
		case '|':
			a |= b
		case '^':
			a ^= b
		default:
			return 0, false
		}
		return a, ok && ok2
	}
	return 0, false
}

// behindMark tells whether a chain may run behind the rules that set the bit: at
// FORWARD or later or, in nat, anywhere.
func (w *world) behindMark(t *netfilter.Table, c *netfilter.Chain) bool {
	for _, base := range t.Chains() {
		if base.Hook == netfilter.NoHook || base != c && !reaches(t, base, c.Name) {
			continue
		}
		late := base.Hook == netfilter.Forward || base.Hook == netfilter.Postrouting || base.Hook == netfilter.Input
		if late || base.Priority > -100 || base.Type == netfilter.NATChain {
			return true
		}
	}
	return false
}
