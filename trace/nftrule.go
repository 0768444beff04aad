package trace

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// turn is where the walk of a chain goes after a rule.
type turn uint8

const (
	onward turn = iota // the next rule
	back               // to the calling chain
	into               // another chain
	done               // out of the table
)

// effect is what a rule of nft has done so far, for its step.
type effect struct {
	at      ruleAt
	act     Action
	target  string
	notes   []string
	comment string
	changed bool // the packet is not what it was
	stepped bool // the step has been recorded
}

// element notes the element that a lookup has found.
func (e *effect) element(s *netfilter.NFTSet, el *netfilter.Element) {
	if el.Comment != "" {
		e.comment = el.Comment
	}
	if s.Name == "" || el.Any {
		return
	}
	text := s.Name + " has " + netfilter.Format(s.Key, el.First)
	if el.First != el.Last {
		text += " to " + netfilter.Format(s.Key, el.Last)
	}
	e.say(text)
}

// say adds a note, once.
func (e *effect) say(s string) {
	for _, n := range e.notes {
		if n == s {
			return
		}
	}
	e.notes = append(e.notes, s)
}

// does sets what the step says the rule did; what comes later counts more.
func (e *effect) does(a Action, target string) {
	if e.act == ActMark && a == ActContinue {
		e.say(target)
		return
	}
	switch {
	case e.act == ActMark && a != ActMark:
		e.say("mark is now " + e.target)
	case e.act == ActContinue && e.target != "":
		e.say(e.target)
	}
	e.act, e.target = a, target
}

// statements runs a rule of nft.
func (r *run) statements(at ruleAt) (turn, netfilter.Jump, fate) {
	e := &effect{at: at}
	r.note = e
	for i, s := range at.rule.Statements {
		r.drawn, r.used = r.drawn[:0], 0
		ok, t, j, f := r.statement(e, s, at.rule.Statements[i+1:])
		switch {
		case !ok:
			if e.changed {
				e.say("the rest of the rule does not apply")
				r.record(e, true)
			}
			return onward, netfilter.Jump{}, goOn
		case t != onward || f != goOn:
			r.record(e, false)
			return t, j, f
		case r.over:
			r.record(e, false)
			return done, j, stop
		}
	}
	r.record(e, false)
	return onward, netfilter.Jump{}, goOn
}

// record makes the rule's step, or completes the one that was made.
func (r *run) record(e *effect, partly bool) {
	note := strings.Join(e.notes, "; ")
	if !e.stepped {
		r.step(e.at, e.act, e.target, note)
	}
	s := &r.steps[len(r.steps)-1]
	s.Partly = partly
	if e.stepped && note != "" {
		s.Note = strings.TrimPrefix(s.Note+"; "+note, "; ")
	}
	if e.comment != "" && s.Comment == "" {
		s.Comment, s.Element = e.comment, true
	}
}

// statement runs one statement. ok is false when the rule ends here without
// having matched; later are the statements behind it.
func (r *run) statement(e *effect, s netfilter.Statement, later []netfilter.Statement) (ok bool, t turn, j netfilter.Jump, f fate) {
	switch s := s.(type) {
	case netfilter.Compare, netfilter.Member, netfilter.Metered, netfilter.StatisticRandom:
		return r.condition(e, s, later), onward, j, goOn
	case netfilter.Count, netfilter.Comment:
		return true, onward, j, goOn
	case netfilter.VerdictMap:
		return r.verdictMap(e, s)
	case netfilter.Assign:
		return r.assign(e, s), onward, j, goOn
	case netfilter.Update:
		return r.update(e, s), onward, j, goOn
	case netfilter.Rewrite:
		ok, f = r.rewrite(e, s)
		if f == natSet || f == stop {
			t = done
		}
		return ok, t, j, f
	case netfilter.Transparent:
		e.does(ActTProxy, "a local socket")
		r.assumed.add("a local socket listens for tproxy")
		return true, onward, j, goOn
	case netfilter.Log:
		e.does(ActContinue, s.Kind)
		return true, onward, j, goOn
	case netfilter.Note:
		e.does(ActContinue, s.Name)
		return true, onward, j, goOn
	case netfilter.CT:
		if s.NoTrack && r.ct.state == 0 {
			r.ct.state = netfilter.StateUntracked
			e.changed = true
		}
		e.does(ActContinue, "notrack")
		e.say("the packet is not tracked: no NAT")
		return true, onward, j, goOn
	}
	return r.ending(e, s)
}

// ending carries out what ends a rule.
func (r *run) ending(e *effect, s netfilter.Statement) (ok bool, t turn, j netfilter.Jump, f fate) {
	switch s := s.(type) {
	case netfilter.Continue:
		e.does(ActContinue, "continue")
		return true, onward, j, goOn
	case netfilter.Accept:
		e.does(ActAccept, "")
		return true, done, j, goOn
	case netfilter.Drop:
		e.does(ActDrop, "")
		r.end(Dropped, r.ruleReason("drops it", e.at)+because(e))
		return true, done, j, stop
	case netfilter.Return:
		e.does(ActReturn, "")
		return true, back, j, goOn
	case netfilter.Jump:
		act := ActJump
		if s.Goto {
			act = ActGoto
		}
		e.does(act, s.Chain)
		if r.table.Chain(s.Chain) == nil {
			r.end(Unknown, "the chain "+s.Chain+" of "+r.table.Name+" was not given")
			return true, done, j, stop
		}
		return true, into, s, goOn
	case netfilter.Reject:
		with := rejectWith(s.With, r.family())
		e.does(ActReject, with)
		e.say(rejectNote(with))
		r.end(Rejected, r.ruleReason("rejects it with "+with, e.at)+because(e))
		return true, done, j, stop
	case netfilter.NFQueue:
		r.record(e, false)
		r.steps = r.steps[:len(r.steps)-1] // queue makes its own
		f = r.queue(e.at, s)
		e.stepped = true
		r.ended = false
		return true, done, j, f
	case netfilter.Unknown:
		f = r.unknownTarget(e.at, s)
		e.stepped = true
		if f == stop {
			t = done
		}
		return true, t, j, f
	default:
		panic(fmt.Sprintf("trace: no meaning for statement %T", s))
	}
}

// because names the element that made a rule drop or reject.
func because(e *effect) string {
	if e.comment == "" {
		return ""
	}
	return ": " + e.comment
}

// rejectWith is the answer in the packet's family.
func rejectWith(with string, f netfilter.Family) string {
	kind, is := strings.CutPrefix(with, "icmpx-")
	switch {
	case !is:
		return with
	case f == netfilter.IPv4:
		if kind == "no-route" {
			kind = "net-unreachable"
		}
		return "icmp-" + kind
	case kind == "host-unreachable":
		return "icmp6-addr-unreachable"
	}
	return "icmp6-" + strings.Replace(kind, "admin-", "adm-", 1)
}

// condition decides a condition, by a fork where it is not known or by chance.
func (r *run) condition(e *effect, s netfilter.Statement, later []netfilter.Statement) bool {
	test := func() (value, string) { r.again(); return r.test(s) }
	v, cond := test()
	if v.truth == no && cond == "" {
		return false
	}
	if v.truth == yes && cond == "" {
		return true
	}
	if r.never(later) {
		return false // whatever it is, the rule does not match
	}
	if v.truth == chance {
		return r.oracle.random(r.tracer.share(s.(netfilter.StatisticRandom)))
	}
	if v.truth == maybe {
		r.draw(func() string { r.again(); v, c := r.test(s); return v.mark() + c }, keyOf(s)...)
		v, cond = test()
	}
	for v.truth == maybe && v.fact {
		r.oracle.unsure(v.key, r.where(e)+v.why)
		v, cond = test()
	}
	if v.truth == maybe {
		return r.oracle.unsure(v.key, r.where(e)+v.why)
	}
	if cond != "" && r.oracle.history(cond) {
		return v.truth == no // what is remembered turns the answer
	}
	return v.truth == yes
}

// mark tells values apart.
func (v value) mark() string { return string('0'+rune(v.truth)) + v.key }

// where begins a doubt about a rule.
func (r *run) where(e *effect) string {
	return r.place(e.at) + ": "
}

// test evaluates a condition.
func (r *run) test(s netfilter.Statement) (v value, cond string) {
	switch s := s.(type) {
	case netfilter.Compare:
		return r.compare(s), ""
	case netfilter.Member:
		return r.member(s)
	case netfilter.Metered:
		return r.eval(netfilter.Match(s)), ""
	case netfilter.StatisticRandom:
		return value{truth: chance}, ""
	default:
		panic(fmt.Sprintf("trace: %T is no condition", s))
	}
}

// keyOf are the expressions of a condition.
func keyOf(s netfilter.Statement) []netfilter.Expr {
	switch s := s.(type) {
	case netfilter.Compare:
		return []netfilter.Expr{s.Left, s.Right}
	case netfilter.Member:
		return []netfilter.Expr{s.Key}
	}
	return nil
}

// never reports whether a rule certainly ends without a match at one of the
// conditions up to the first statement that changes something, so that no fork
// is made for it.
func (r *run) never(later []netfilter.Statement) bool {
	for _, s := range later {
		switch s := s.(type) {
		case netfilter.Compare, netfilter.Member:
			r.drawn, r.used = r.drawn[:0], 0
			if v, cond := r.test(s); v.truth == no && cond == "" {
				return true
			}
		case netfilter.Count, netfilter.Log, netfilter.Comment, netfilter.Metered, netfilter.StatisticRandom:
		case netfilter.VerdictMap:
			r.drawn, r.used = r.drawn[:0], 0
			f := r.inNFTSet(s.Key, s.Map)
			return f.truth == no && f.cond == ""
		default:
			return false
		}
	}
	return false
}
