package judge

import (
	"fmt"
	"strings"

	"portolan/lab"
	"portolan/netfilter"
	"portolan/trace"
)

// place is a rule that matched at a hook, or, with rule 0, a chain's policy.
type place struct {
	hook  netfilter.Hook
	table string
	chain string
	rule  int
}

func (p place) String() string {
	return fmt.Sprintf("%v:%s:%s:%d", p.hook, p.table, p.chain, p.rule)
}

// path is the way of a packet through the rules.
type path []place

func (p path) String() string {
	var list []string
	for _, x := range p {
		list = append(list, x.String())
	}
	return strings.Join(list, " ")
}

// ruleset finds rules by their place.
type ruleset struct {
	host    *netfilter.Host
	variant netfilter.Variant
	devices map[int]string
}

func newRuleset(h *netfilter.Host, v lab.Variant, devices map[int]string) ruleset {
	r := ruleset{host: h, variant: netfilter.NFT, devices: devices}
	if v == lab.Legacy {
		r.variant = netfilter.Legacy
	}
	return r
}

func (r ruleset) chain(f netfilter.Family, table, chain string) *netfilter.Chain {
	t := r.host.Table(f, r.variant, table)
	if t == nil {
		return nil
	}
	return t.Chain(chain)
}

// rule is nil for a policy, and for a place that does not exist.
func (r ruleset) rule(f netfilter.Family, p place) *netfilter.Rule {
	c := r.chain(f, p.table, p.chain)
	if c == nil || p.rule < 1 || p.rule > len(c.Rules) {
		return nil
	}
	return &c.Rules[p.rule-1]
}

// tracing tells whether a rule is the one that makes the kernel tell.
func (r ruleset) tracing(f netfilter.Family, p place) bool {
	rule := r.rule(f, p)
	if rule == nil {
		return false
	}
	l, is := rule.Target.(netfilter.Log)
	return is && l.Kind == "TRACE"
}

// moment is a place with the packet as it was there.
type moment struct {
	place
	event event
}

// ofKernel puts the kernel's events into the form that is compared: without the
// rules that make it tell, without the ends of chains, and without policies of
// chains that have no rules.
func (r ruleset) ofKernel(events []event) (out []moment, err error) {
	for _, e := range events {
		p := place{e.hook, e.table, e.chain, e.rule}
		c := r.chain(e.family, e.table, e.chain)
		if c == nil {
			return nil, fmt.Errorf("the kernel tells of a chain that was not read: %v", p)
		}
		if p.rule > len(c.Rules) {
			p.rule = 0
		}
		switch {
		case p.rule == 0 && (c.Hook == netfilter.NoHook || len(c.Rules) == 0 && c.Policy == netfilter.PolicyAccept):
		case r.tracing(e.family, p):
		default:
			out = append(out, moment{p, e})
		}
	}
	return out, nil
}

// ofTracer does the same for what trace says.
func (r ruleset) ofTracer(f netfilter.Family, steps []trace.Step) (out path, kept []trace.Step) {
	for _, s := range steps {
		p := place{s.Hook, s.Table, s.Chain, s.Rule}
		if !r.tracing(f, p) {
			out, kept = append(out, p), append(kept, s)
		}
	}
	return out, kept
}

func pathOf(list []moment) (out path) {
	for _, m := range list {
		out = append(out, m.place)
	}
	return out
}

// refusing tells whether a packet's way ends at a rule that rejects it.
func (r ruleset) refusing(f netfilter.Family, way []moment) bool {
	if len(way) == 0 {
		return false
	}
	rule := r.rule(f, way[len(way)-1].place)
	if rule == nil {
		return false
	}
	_, is := rule.Target.(netfilter.Reject)
	return is
}

// compare tells in what the moments of the kernel differ from the steps of the
// tracer beyond the rules: marks, addresses, interfaces.
func (r ruleset) compare(kernel []moment, steps []trace.Step, hops []trace.Hop) (diffs []string) {
	for i, m := range kernel {
		s := steps[i]
		switch {
		case !m.event.after && m.event.mark != s.Mark:
			diffs = append(diffs, fmt.Sprintf("at %v the mark is 0x%x, trace says 0x%x", m.place, m.event.mark, s.Mark))
		case m.event.after && i+1 < len(kernel) && kernel[i+1].hook == m.hook && m.event.mark != steps[i+1].Mark && s.Action != trace.ActPolicy:
			diffs = append(diffs, fmt.Sprintf("after %v the mark is 0x%x, trace says 0x%x", m.place, m.event.mark, steps[i+1].Mark))
		}
		if first := i == 0 || kernel[i-1].hook != m.hook || kernel[i-1].table != m.table; !first {
			continue
		}
		if m.event.seen.src != s.Src || m.event.seen.dst != s.Dst {
			diffs = append(diffs, fmt.Sprintf("at %v the packet goes %v > %v, trace says %v > %v", m.place, m.event.seen.src, m.event.seen.dst, s.Src, s.Dst))
		}
		h := hops[s.Hop]
		if in, out := r.devices[m.event.in], r.devices[m.event.out]; in != h.In || out != h.Out {
			diffs = append(diffs, fmt.Sprintf("at %v the packet goes in by %q and out by %q, trace says %q and %q", m.place, in, out, h.In, h.Out))
		}
	}
	return diffs
}
