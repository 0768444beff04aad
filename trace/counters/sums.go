package counters

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// Sum is one check: what came into a chain against what left it.
type Sum struct {
	Table, Chain string
	Text         string
	OK           bool
}

// amount is a number of packets that may be off by slack, or not known.
type amount struct {
	n, slack uint64
	known    bool
}

func (a amount) agrees(b amount) bool {
	d := a.n - b.n
	if b.n > a.n {
		d = b.n - a.n
	}
	return d <= a.slack+b.slack
}

func of(g Growth) amount { return amount{g.Packets, g.Slack, !g.Reset} }

// unconditional reports whether a rule matches every packet.
func unconditional(r *netfilter.Rule) bool {
	for _, m := range r.Matches {
		if _, ok := m.(netfilter.Comment); !ok {
			return false
		}
	}
	return true
}

// ends reports whether a rule's target ends the walk of the table.
func ends(t netfilter.Target) bool {
	switch t.(type) {
	case netfilter.Accept, netfilter.Drop, netfilter.Reject, netfilter.Translate, netfilter.NFQueue, netfilter.TProxy:
		return true
	}
	return false
}

// ledger checks the chains of one table.
type ledger struct {
	t   *netfilter.Table
	all map[string]*grown
	out []Sum
}

func sums(t *netfilter.Table, all map[string]*grown) []Sum {
	l := &ledger{t: t, all: all}
	for _, c := range t.Chains() {
		l.chain(all[c.Name])
	}
	return l.out
}

// entering is how many packets came into a chain, if every jump to it is
// known.
func (l *ledger) entering(c *netfilter.Chain) amount {
	if c.Hook != netfilter.NoHook {
		return amount{}
	}
	refs := 0
	sum := amount{known: true}
	for _, g := range l.all {
		for i := range g.chain.Rules {
			if j, ok := g.chain.Rules[i].Target.(netfilter.Jump); ok && j.Chain == c.Name {
				refs++
				a := of(g.rules[i])
				sum.n, sum.slack, sum.known = sum.n+a.n, sum.slack+a.slack, sum.known && a.known
			}
		}
	}
	if refs == 0 || (c.References > 0 && refs != c.References) {
		return amount{}
	}
	return sum
}

// ended is how many of the packets that came into a chain ended there or in a
// chain below; not known where several rules lead to one chain.
func (l *ledger) ended(name string, depth int) amount {
	g := l.all[name]
	if g == nil || depth > 32 {
		return amount{}
	}
	sum := amount{known: true}
	for i := range g.chain.Rules {
		var a amount
		switch t := g.chain.Rules[i].Target.(type) {
		case netfilter.Jump:
			a = l.endedBy(t, of(g.rules[i]), depth)
		case netfilter.Unknown:
			a = amount{known: g.rules[i].Packets == 0}
		default:
			a = amount{known: true}
			if ends(t) {
				a = of(g.rules[i])
			}
		}
		sum.n, sum.slack, sum.known = sum.n+a.n, sum.slack+a.slack, sum.known && a.known
	}
	return sum
}

// endedBy is how many of the packets that took one jump did not come back.
func (l *ledger) endedBy(j netfilter.Jump, took amount, depth int) amount {
	if took.known && took.n == 0 && took.slack == 0 {
		return amount{known: true}
	}
	a := l.ended(j.Chain, depth+1)
	g := l.all[j.Chain]
	if g == nil || !a.known || a.n == 0 {
		return a
	}
	// Only if this is the one jump that was taken are they all its own.
	if in := l.entering(g.chain); !in.known || !in.agrees(took) {
		return amount{}
	}
	return a
}

// chain follows the packets through a chain: each rule that matches all must
// have seen what is left, and the policy what comes to the end.
func (l *ledger) chain(g *grown) {
	c := g.chain
	left := l.entering(c)
	var story []string
	ok, checked := true, 0
	if left.known && left.n > 0 {
		story = append(story, fmt.Sprintf("%d came in", left.n))
	}
	for i := range c.Rules {
		r, n := &c.Rules[i], of(g.rules[i])
		if unconditional(r) && n.known {
			if left.known {
				checked++
				if !left.agrees(n) {
					ok = false
					story = append(story, fmt.Sprintf("rule %d should have seen %d and saw %d", i+1, left.n, n.n))
				}
			}
			left = n
		}
		left = l.pass(c, i, r, n, left, &story)
	}
	if c.Hook != netfilter.NoHook && left.known {
		p := of(g.policy)
		if p.known {
			checked++
			story = append(story, fmt.Sprintf("%d reached the policy", p.n))
			if !left.agrees(p) {
				ok = false
				story = append(story, fmt.Sprintf("which should be %d", left.n))
			}
		}
	}
	if checked == 0 || len(story) == 0 {
		return
	}
	l.out = append(l.out, Sum{Table: l.t.Name, Chain: c.Name, OK: ok, Text: strings.Join(story, ", ")})
}

// pass takes off what a rule keeps from the rest of the chain.
func (l *ledger) pass(c *netfilter.Chain, i int, r *netfilter.Rule, n, left amount, story *[]string) amount {
	gone := amount{known: true}
	word := ""
	switch t := r.Target.(type) {
	case netfilter.Return:
		if c.Hook == netfilter.NoHook {
			gone, word = n, "RETURN"
		}
	case netfilter.Jump:
		gone, word = l.endedBy(t, n, 0), "ended in "+t.Chain
	case netfilter.Unknown:
		gone = amount{known: n.n == 0}
	default:
		if ends(t) {
			gone, word = n, targetWord(r)
		}
	}
	if gone.known && gone.n > 0 && word != "" {
		*story = append(*story, fmt.Sprintf("%d %s (rule %d)", gone.n, word, i+1))
	}
	if !left.known || !gone.known {
		return amount{}
	}
	if gone.n > left.n {
		return amount{slack: left.slack + gone.slack, known: true}
	}
	return amount{left.n - gone.n, left.slack + gone.slack, true}
}

// targetWord is the target's name as the rule writes it.
func targetWord(r *netfilter.Rule) string {
	f := strings.Fields(r.Text)
	for i, w := range f {
		if (w == "-j" || w == "--jump") && i+1 < len(f) {
			return f[i+1]
		}
	}
	return "ended"
}
