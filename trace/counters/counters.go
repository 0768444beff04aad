// Package counters compares the packet counters of two dumps of one host: it
// says which rules grew, and whether what grew adds up. It looks at
// differences only: counters inside a proxy's chains start again at each
// rewrite, so absolute values of two chains do not fit together.
package counters

import (
	"fmt"
	"strings"

	"portolan/netfilter"
)

// Growth is the growth of one rule's or policy's counters.
type Growth struct {
	Family  netfilter.Family
	Variant netfilter.Variant
	Table   string
	Chain   string
	Rule    int // from 1; 0 is the policy
	Text    string
	Packets uint64
	Bytes   uint64
	Slack   uint64 // listings abbreviate: Packets may be off by so many
	Reset   bool   // the counter started again: Packets is what it has now
	New     bool   // the rule was not there before
}

// Report is the comparison of two dumps.
type Report struct {
	Grown []Growth
	Sums  []Sum
}

// grown is the growth of a chain's rules and policy.
type grown struct {
	chain  *netfilter.Chain
	rules  []Growth
	policy Growth
}

// slack is how far a counter of a listing may be off: 1954K is rounded to
// thousands.
func slack(n uint64) uint64 {
	for _, unit := range []uint64{1e12, 1e9, 1e6, 1e3} {
		if n%unit == 0 && n >= 10*unit && n >= 1e5 {
			return unit / 2
		}
	}
	return 0
}

func (g *Growth) set(before, after netfilter.Counters) {
	if after.Packets < before.Packets || after.Bytes < before.Bytes {
		g.Reset = true
		before = netfilter.Counters{}
	}
	g.Packets, g.Bytes = after.Packets-before.Packets, after.Bytes-before.Bytes
	g.Slack = slack(before.Packets) + slack(after.Packets)
}

// Diff compares two dumps of one host, an earlier and a later one. Rules are recognised
// by their text and, among equal ones, by their order. Without an earlier dump (nil) the
// counters of the later one are taken as they are, which is right only where no chain
// was rewritten since the others began to count.
func Diff(before, after *netfilter.Host) Report {
	var rep Report
	for _, t := range after.Tables {
		var old *netfilter.Table
		if before != nil {
			old = before.Table(t.Family, t.Variant, t.Name)
		}
		all := map[string]*grown{}
		for _, c := range t.Chains() {
			g := compare(t, old, c)
			all[c.Name] = g
			for _, r := range append(g.rules, g.policy) {
				if r.Packets > 0 || r.Reset {
					rep.Grown = append(rep.Grown, r)
				}
			}
		}
		rep.Sums = append(rep.Sums, sums(t, all)...)
	}
	return rep
}

// compare holds the rules of a chain against those of the first dump, by their text and, of
// several alike, their order.
func compare(t, old *netfilter.Table, c *netfilter.Chain) *grown {
	g := &grown{chain: c}
	had := map[string][]netfilter.Counters{}
	var policy netfilter.Counters
	seen := false
	if old != nil && old.Chain(c.Name) != nil {
		seen = true
		policy = old.Chain(c.Name).Counters
		for _, r := range old.Chain(c.Name).Rules {
			k := key(r.Text)
			had[k] = append(had[k], r.Counters)
		}
	}
	label := Growth{Family: t.Family, Variant: t.Variant, Table: t.Name, Chain: c.Name}
	for i := range c.Rules {
		r := &c.Rules[i]
		x := label
		x.Rule, x.Text = i+1, r.Text
		k := key(r.Text)
		if l := had[k]; len(l) > 0 {
			x.set(l[0], r.Counters)
			had[k] = l[1:]
		} else {
			x.set(netfilter.Counters{}, r.Counters)
			x.New = old != nil
		}
		g.rules = append(g.rules, x)
	}
	g.policy = label
	if c.Hook != netfilter.NoHook {
		g.policy.Text = "-P " + c.Name + " " + c.Policy.String()
		g.policy.set(policy, c.Counters)
	}
	g.policy.New = old != nil && !seen
	return g
}

func key(text string) string { return strings.Join(strings.Fields(text), " ") }

// Text writes a report for people.
func Text(rep Report) string {
	var b strings.Builder
	if len(rep.Grown) == 0 {
		b.WriteString("no counter grew\n")
	}
	for _, g := range rep.Grown {
		note := ""
		switch {
		case g.Reset:
			note = "  (started again: at least so many)"
		case g.New:
			note = "  (new)"
		case g.Slack > 0:
			note = fmt.Sprintf("  (±%d: the listing is rounded)", g.Slack)
		}
		fmt.Fprintf(&b, "%+10d packets %+12d bytes  %s %s rule %d: %s%s\n", g.Packets, g.Bytes, g.Table, g.Chain, g.Rule, g.Text, note)
	}
	for i, s := range rep.Sums {
		if i == 0 {
			b.WriteString("\nDoes it add up?\n")
		}
		ok := "yes"
		if !s.OK {
			ok = "NO "
		}
		fmt.Fprintf(&b, "  %s  %s %s: %s\n", ok, s.Table, s.Chain, s.Text)
	}
	return b.String()
}
