package trace

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// fate is how the walk of a table's chain ends.
type fate uint8

const (
	goOn   fate = iota // the next table runs
	stop               // the verdict of the run is set
	natSet             // a NAT target has set the manipulation up
)

// exactDst is the single destination address a rule is for.
func exactDst(ms []netfilter.Match) (netip.Addr, bool) {
	for _, m := range ms {
		if a, ok := m.(netfilter.Address); ok && a.Side == netfilter.DestinationSide && !a.Not && a.Prefix.IsSingleIP() {
			return a.Prefix.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// exactPort is the single destination port a rule is for, if nothing with a
// side effect comes before it.
func exactPort(ms []netfilter.Match) (uint16, bool) {
	for _, m := range ms {
		switch m := m.(type) {
		case netfilter.Port:
			if m.Side == netfilter.DestinationSide && !m.Not && m.Range.First == m.Range.Last {
				return m.Range.First, true
			}
		case netfilter.Address, netfilter.MaskedAddress, netfilter.Protocol, netfilter.Interface, netfilter.Comment:
		default:
			return 0, false
		}
	}
	return 0, false
}

// maxSteps bounds a walk: chains that call each other twice, thirty deep, are
// no circle but never end.
const maxSteps = 20000

// frame is a chain being walked: the place to go on at, and the chains that a
// goto has replaced.
type frame struct {
	chain *netfilter.Chain
	cand  []int32 // candidates of an indexed chain, nil for all rules
	next  int
	trail []string
}

func (r *run) frame(c *netfilter.Chain) frame {
	f := frame{chain: c}
	if ix := r.tracer.chains[c]; ix != nil && (r.pkt.dport != 0 || !hasPorts(r.pkt.proto)) {
		f.cand = ix.candidates(&r.pkt, make([]int32, 0, 16))
	}
	return f
}

// following gives the next rule of a frame, nil at the end.
func (f *frame) following() (rule *netfilter.Rule, number int) {
	i := f.next
	if f.cand != nil {
		if i >= len(f.cand) {
			return nil, 0
		}
		i = int(f.cand[i])
	}
	if i >= len(f.chain.Rules) {
		return nil, 0
	}
	f.next++
	return &f.chain.Rules[i], i + 1
}

// chain walks a base chain and those that it calls.
func (r *run) chain(b netfilter.Hooked) fate {
	base := b.Chain
	r.table, r.base = b.Table, base
	stack := make([]frame, 1, 8)
	stack[0] = r.frame(base)
	for {
		if len(r.steps) > maxSteps {
			r.end(Unknown, "more than "+strconv.Itoa(maxSteps)+" rules match: the walk was given up")
			return stop
		}
		top := &stack[len(stack)-1]
		rule, n := top.following()
		if rule == nil {
			if len(stack) == 1 {
				return r.policy(base)
			}
			stack = stack[:len(stack)-1]
			continue
		}
		t, target, f := r.apply(ruleAt{top.chain, n, rule})
		switch t {
		case done:
			return f
		case back:
			if len(stack) == 1 {
				return r.policy(base)
			}
			stack = stack[:len(stack)-1]
		case into:
			var looped bool
			if stack, looped = r.jump(stack, target); looped {
				return stop
			}
		}
	}
}

// ruleAt is a rule where it stands: the number in its chain, from 1. The policy of a chain
// is number 0, without a rule.
type ruleAt struct {
	chain  *netfilter.Chain
	number int
	rule   *netfilter.Rule
}

// place names a rule.
func (r *run) place(at ruleAt) string {
	return r.table.Name + " " + at.chain.Name + " rule " + strconv.Itoa(at.number)
}

// apply runs one rule, if it matches.
func (r *run) apply(at ruleAt) (turn, netfilter.Jump, fate) {
	if at.rule.Statements != nil {
		return r.statements(at)
	}
	if !r.matches(at) {
		return onward, netfilter.Jump{}, goOn
	}
	switch target := at.rule.Target.(type) {
	case netfilter.Return:
		r.step(at, ActReturn, "", "")
		return back, netfilter.Jump{}, goOn
	case netfilter.Jump:
		act := ActJump
		if target.Goto {
			act = ActGoto
		}
		r.step(at, act, target.Chain, "")
		return into, target, goOn
	}
	f := r.target(at)
	ended := r.ended
	r.ended = false
	if f != goOn || ended {
		return done, netfilter.Jump{}, f
	}
	return onward, netfilter.Jump{}, goOn
}

// jump enters a chain; looped is true when that chain is being walked already.
func (r *run) jump(stack []frame, j netfilter.Jump) (out []frame, looped bool) {
	top := &stack[len(stack)-1]
	for _, f := range stack {
		if f.chain.Name == j.Chain || slices.Contains(f.trail, j.Chain) {
			names := []string{}
			for _, x := range stack {
				names = append(append(names, x.trail...), x.chain.Name)
			}
			r.end(Loop, "chains call each other in a circle: "+strings.Join(append(names, j.Chain), " -> ")+"; the kernel refuses such rules")
			return stack, true
		}
	}
	next := r.frame(r.table.Chain(j.Chain))
	if j.Goto && len(stack) > 1 {
		next.trail = append(slices.Clone(top.trail), top.chain.Name)
		stack[len(stack)-1] = next
		return stack, false
	}
	if j.Goto {
		// From a built-in chain: the end of the target gives the policy.
		top.next = len(top.chain.Rules)
		top.cand = nil
	}
	return append(stack, next), false
}

// policy applies a built-in chain's policy. Chains without rules say nothing
// unless they drop.
func (r *run) policy(c *netfilter.Chain) fate {
	if c.Policy == netfilter.PolicyDrop {
		r.step(ruleAt{chain: c}, ActPolicy, "DROP", "")
		r.end(Dropped, "the policy of "+r.table.Name+" "+c.Name+" is DROP")
		return stop
	}
	if len(c.Rules) > 0 {
		r.step(ruleAt{chain: c}, ActPolicy, "ACCEPT", "")
	}
	return goOn
}

// step records a rule that matched.
func (r *run) step(at ruleAt, act Action, target, note string) {
	s := Step{Hop: len(r.hops) - 1, Hook: r.hops[len(r.hops)-1].Hook, Table: r.table.Name, Variant: r.table.Variant, Chain: at.chain.Name, Rule: at.number, Action: act, Target: target, Note: note}
	s.Src, s.Dst, s.DstPort, s.Mark = r.pkt.src, r.pkt.dst, r.pkt.dport, r.pkt.mark
	if at.rule != nil {
		s.Text, s.Comment = at.rule.Text, at.rule.Comment()
	} else {
		s.Text = "-P " + at.chain.Name + " " + target
		if r.table.Variant == netfilter.Native {
			s.Text = "policy " + strings.ToLower(target)
		}
	}
	r.steps = append(r.steps, s)
}

// matches evaluates a rule's matches. What is certainly false comes first, so
// that no fork is made for a rule that cannot match; the forks then follow
// from left to right, as the kernel would come to them.
func (r *run) matches(at ruleAt) bool {
	open := false
	for _, m := range at.rule.Matches {
		switch r.eval(m).truth {
		case no:
			return false
		case maybe, chance:
			open = true
		}
	}
	if !open {
		return true
	}
	for _, m := range at.rule.Matches {
		switch v := r.eval(m); v.truth {
		case maybe:
			if !r.oracle.unsure(v.key, r.place(at)+": "+v.why) {
				return false
			}
		case chance:
			if !r.chance(m) {
				return false
			}
		}
	}
	return true
}
