package judge

import (
	"fmt"
	"net/netip"
	"strings"

	"portolan/netfilter"
	"portolan/trace"
)

// bench judges what trace says of probes by what the kernel did with them.
type bench struct {
	rules    ruleset
	trace    *trace.Tracer
	taken    map[string]bool // addresses and ports that were seen to leave, with those they went to
	remember map[string]int  // what "recent" lists hold, list and address: since which event
}

func newBench(r ruleset) *bench {
	return &bench{rules: r, trace: trace.New(r.host, trace.Options{}), remember: map[string]int{}, taken: map[string]bool{}}
}

// finding is a probe with what became of it and what trace says.
type finding struct {
	probe   probe
	rules   ruleset
	fact    fact
	way     []moment
	answer  trace.Answer
	outcome *trace.Outcome // the one that the kernel took, nil if there is none
	diffs   []string
	known   bool // the node has seen a packet of its connection before
}

func (f *finding) differ(format string, args ...any) {
	f.diffs = append(f.diffs, fmt.Sprintf(format, args...))
}

// String shows the outcome that goes with the kernel longest, and where they part.
func (f *finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v\n\tkernel: %v\n", f.probe, f.fact)
	var nearest *trace.Outcome
	common := -1
	for i := range f.answer.Outcomes {
		o := &f.answer.Outcomes[i]
		way, _ := f.rules.ofTracer(netfilter.FamilyOf(f.probe.dst), o.Steps)
		n := 0
		for n < len(way) && n < len(f.way) && way[n] == f.way[n].place {
			n++
		}
		if n > common {
			common, nearest = n, o
		}
	}
	if f.outcome != nil {
		nearest = f.outcome
	}
	if nearest != nil {
		fmt.Fprintf(&b, "\ttrace:  %v %v > %v, share %v of %d outcomes: %s\n", nearest.Verdict, netip.AddrPortFrom(nearest.Src, nearest.SrcPort), netip.AddrPortFrom(nearest.Dst, nearest.DstPort), nearest.Share, len(f.answer.Outcomes), nearest.Reason)
		way, _ := f.rules.ofTracer(netfilter.FamilyOf(f.probe.dst), nearest.Steps)
		f.rules.show(&b, netfilter.FamilyOf(f.probe.dst), pathOf(f.way), way)
	}
	for _, d := range f.diffs {
		fmt.Fprintf(&b, "\tDIFFERENCE: %s\n", d)
	}
	return b.String()
}

// show prints two ways beside each other.
func (r ruleset) show(b *strings.Builder, f netfilter.Family, kernel, said path) {
	n := 0
	line := func(who string, p place) {
		text := ""
		if rule := r.rule(f, p); rule != nil {
			text = rule.Text
		}
		fmt.Fprintf(b, "\t  %-7s %v %s\n", who, p, text)
	}
	for ; n < len(kernel) && n < len(said) && kernel[n] == said[n]; n++ {
		line("", kernel[n])
	}
	for _, p := range kernel[n:] {
		line("kernel", p)
	}
	for _, p := range said[n:] {
		line("trace", p)
	}
}

// judge compares one probe.
func (b *bench) judge(p probe, flow trace.Flow, e *evidence) *finding {
	f := &finding{probe: p, rules: b.rules, answer: b.trace.Trace(flow)}
	family := netfilter.FamilyOf(p.dst)
	var err error
	if f.way, err = b.rules.ofKernel(e.events); err != nil {
		f.differ("%v", err)
		return f
	}
	f.fact = e.fact(p, b.rules, f.way)
	for _, o := range f.answer.Outcomes {
		if o.Verdict == trace.Unknown || len(o.Doubts) > 0 {
			f.differ("trace is not certain: %s %v", o.Reason, o.Doubts)
		}
	}
	// Of several outcomes that take the kernel's path, for example to several
	// addresses of one range, the one that fits best counts.
	want := pathOf(f.way).String()
	var best []string
	for i := range f.answer.Outcomes {
		o := &f.answer.Outcomes[i]
		way, kept := b.rules.ofTracer(family, o.Steps)
		if way.String() != want {
			continue
		}
		diffs := append(b.rules.compare(f.way, kept, o.Hops), b.arrival(&f.fact, o)...)
		if f.outcome == nil || len(diffs) < len(best) {
			f.outcome, best = o, diffs
		}
	}
	if f.outcome == nil {
		f.differ("no outcome of trace takes the kernel's path")
		return f
	}
	f.diffs = append(f.diffs, best...)
	b.taken[wire(f.fact.src, f.fact.sport, f.fact)] = true
	b.memory(f, e)
	return f
}

// arrival compares the verdict and the packet that arrived.
func (b *bench) arrival(k *fact, o *trace.Outcome) (diffs []string) {
	differ := func(format string, args ...any) { diffs = append(diffs, fmt.Sprintf(format, args...)) }
	if k.verdict == trace.Dropped && o.Verdict == trace.Rejected {
		// A route that refuses, since no rule does. For IPv4 the kernel sends such errors
		// to one host only once a second, whatever icmp_ratelimit says.
		k.verdict, k.unheard = o.Verdict, true
	}
	if k.verdict != o.Verdict {
		differ("the kernel's verdict is %v, trace says %v: %s", k.verdict, o.Verdict, o.Reason)
		return diffs
	}
	if !k.dst.IsValid() {
		return nil
	}
	if k.dst != o.Dst || k.dport != o.DstPort && o.DstPort != 0 {
		differ("the packet went to %v, trace says %v", netip.AddrPortFrom(k.dst, k.dport), netip.AddrPortFrom(o.Dst, o.DstPort))
	}
	// A source port that another connection to the same place has by chance, since it
	// was drawn, is changed without any rule.
	clash := b.taken[wire(o.Src, o.SrcPort, *k)]
	if k.src != o.Src || k.sport != o.SrcPort && o.SrcPort != 0 && !clash {
		differ("the packet came from %v, trace says %v", netip.AddrPortFrom(k.src, k.sport), netip.AddrPortFrom(o.Src, o.SrcPort))
	}
	return diffs
}

// wire names a packet as it leaves: where it comes from, and where it went.
func wire(src netip.Addr, sport uint16, k fact) string {
	return fmt.Sprint(netip.AddrPortFrom(src, sport), netip.AddrPortFrom(k.dst, k.dport))
}

// learn follows what packets put into "recent" lists. An entry stays: time-outs are
// long and addresses few.
func (b *bench) learn(events []event) {
	for _, e := range events {
		rule := b.rules.rule(e.family, place{e.hook, e.table, e.chain, e.rule})
		if rule == nil {
			continue
		}
		for _, m := range rule.Matches {
			r, is := m.(netfilter.Recent)
			if !is || r.Op != netfilter.RecentSet {
				continue
			}
			entry := r.Name + " " + e.seen.src.String()
			if since, known := b.remember[entry]; !known || e.at < since {
				b.remember[entry] = e.at
			}
		}
	}
}

// memory checks that the kernel's branch is one that can be taken: one that has a
// share and for which no list remembers the client, or one whose condition holds.
func (b *bench) memory(f *finding, e *evidence) {
	if len(e.events) == 0 {
		return
	}
	first, last := e.events[0].at, e.events[len(e.events)-1].at
	for _, c := range f.outcome.Conditions {
		if since, known := b.remember[remembered(c)]; !known || since > last {
			f.differ("the kernel took a branch for which %s, which nothing made it", c)
		}
	}
	if f.outcome.Share.Sign() == 0 && len(f.outcome.Conditions) == 0 {
		f.differ("the kernel took a branch that has no share")
	}
	if len(f.outcome.Conditions) > 0 {
		return
	}
	for _, o := range f.answer.Outcomes {
		for _, c := range o.Conditions {
			if since, known := b.remember[remembered(c)]; known && since < first && b.asked(f, c) {
				f.differ("%s, but the kernel did not take that branch", c)
			}
		}
	}
}

// asked tells whether the kernel came to a chain with a rule that asks the list of
// a condition.
func (b *bench) asked(f *finding, condition string) bool {
	list, _, _ := strings.Cut(remembered(condition), " ")
	for _, m := range f.way {
		c := b.rules.chain(m.event.family, m.table, m.chain)
		for _, rule := range c.Rules[:min(m.rule, len(c.Rules))] {
			for _, match := range rule.Matches {
				if r, is := match.(netfilter.Recent); is && r.Op != netfilter.RecentSet && r.Name == list && !conditional(rule.Matches) {
					return true
				}
			}
		}
	}
	return false
}

// conditional tells whether a rule has other conditions than its list.
func conditional(list []netfilter.Match) bool {
	for _, m := range list {
		switch m.(type) {
		case netfilter.Comment, netfilter.Recent:
		default:
			return true
		}
	}
	return false
}

// remembered takes "the list NAME remembers ADDRESS from the last N s" apart.
func remembered(condition string) (entry string) {
	word := strings.Fields(condition)
	if len(word) < 5 || word[1] != "list" || word[3] != "remembers" {
		panic("judge: a condition that is not about a list: " + condition)
	}
	return word[2] + " " + word[4]
}
