package trace

import (
	"math/big"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// Options change how a Tracer explains.
type Options struct {
	// Names maps chain names to Service or endpoint names. Chains that are
	// not in it are named from comments and hashes.
	Names map[string]string
	// Reply also follows the answer back through the host.
	Reply bool
	// Terse leaves out what is for people: Hops, Steps, Service, and in Reason all but
	// the last word. Outcomes that differ in nothing else are one. It is several times
	// as fast.
	Terse bool
	// MaxBranches bounds the paths that are followed; 0 stands for 20,000.
	MaxBranches int
}

// Tracer answers questions about one host. It is immutable and safe for
// concurrent use.
type Tracer struct {
	host   *netfilter.Host
	fib    *netfilter.FIB
	opt    Options
	hooks  map[hookKey][]netfilter.Hooked
	chains map[*netfilter.Chain]*index
	flows  map[flowKey]int
	prepared
}

type hookKey struct {
	family netfilter.Family
	hook   netfilter.Hook
}

type flowKey struct {
	proto uint8
	tuple netfilter.Tuple
}

// New prepares a host for tracing: routes and long chains are indexed, which
// takes time in proportion to the number of rules.
func New(h *netfilter.Host, o Options) *Tracer {
	if o.MaxBranches == 0 {
		o.MaxBranches = 20000
	}
	t := &Tracer{host: h, fib: netfilter.NewFIB(h), opt: o, hooks: map[hookKey][]netfilter.Hooked{}, chains: map[*netfilter.Chain]*index{}, prepared: prepare(h)}
	for _, f := range []netfilter.Family{netfilter.IPv4, netfilter.IPv6} {
		for _, hook := range netfilter.Hooks {
			t.hooks[hookKey{f, hook}] = h.AtHook(f, hook)
		}
	}
	for _, table := range h.Tables {
		for _, c := range table.Chains() {
			if len(c.Rules) >= indexFrom {
				t.chains[c] = newIndex(c)
			}
		}
	}
	t.flows = make(map[flowKey]int, 2*len(h.Flows))
	for i, e := range h.Flows {
		t.flows[flowKey{e.Proto, e.Reply}] = i
		t.flows[flowKey{e.Proto, e.Orig}] = i
	}
	return t
}

// Host is the host the tracer was made for.
func (t *Tracer) Host() *netfilter.Host { return t.host }

// Trace follows a flow along every way it can go.
func (t *Tracer) Trace(f Flow) Answer { return t.trace(f, memory{}) }

// trace follows a flow whose client rules have already learned of.
func (t *Tracer) trace(f Flow, m memory) Answer {
	if f.TTL == 0 {
		f.TTL = 64
	}
	a := Answer{Flow: f}
	o := &oracle{}
	assumed := &notes{}
	merged := map[outcomeKey]int{}
	var hops []Hop
	var steps []Step
	covered := new(big.Rat)
	for n := 0; ; n++ {
		if n == t.opt.MaxBranches {
			rest := new(big.Rat).Sub(one, covered)
			a.Outcomes = append(a.Outcomes, Outcome{Share: rest, Verdict: Unknown, Src: f.Src, SrcPort: f.SrcPort, Dst: f.Dst, DstPort: f.DstPort, Proto: f.Proto,
				Reason: "more than " + strconv.Itoa(n) + " ways to go: the others were not followed"})
			break
		}
		r := &run{tracer: t, oracle: o, assumed: assumed, memory: m.clone(), hops: hops, steps: steps}
		r.start(f)
		out := r.outcome()
		if t.opt.Terse { // the next walk may write over them
			hops, steps, out.Hops, out.Steps = r.hops[:0], r.steps[:0], nil, nil
		}
		a.Entry, a.In = r.entry, r.arrival
		covered.Add(covered, out.Share)
		k := out.key(t.opt.Terse)
		if i, ok := merged[k]; ok {
			same := &a.Outcomes[i]
			same.Share = new(big.Rat).Add(same.Share, out.Share)
			same.Certain = same.Certain && out.Certain
		} else {
			merged[k] = len(a.Outcomes)
			a.Outcomes = append(a.Outcomes, out)
		}
		if !o.advance() {
			break
		}
	}
	slices.SortStableFunc(a.Outcomes, func(x, y Outcome) int { return y.Share.Cmp(x.Share) })
	for i := range a.Outcomes {
		if !t.opt.Terse {
			t.describe(&a.Outcomes[i])
		}
		if !t.opt.Reply {
			continue
		}
		back := &run{tracer: t, oracle: &oracle{}, assumed: assumed}
		if t.opt.Terse {
			back.hops, back.steps = hops, steps
		}
		a.Outcomes[i].Reply = back.reply(&a.Outcomes[i])
		if t.opt.Terse {
			hops, steps = back.hops[:0], back.steps[:0]
		}
	}
	a.Assumptions = assumed.list
	return a
}

// Terse is the same Tracer with Options.Terse.
func (t *Tracer) Terse() *Tracer {
	out := *t
	out.opt.Terse = true
	return &out
}

// outcomeKey tells outcomes apart that differ in verdict, addresses or steps.
type outcomeKey struct {
	verdict  Verdict
	src, dst netip.AddrPort
	nat      [2]bool
	reason   string
	way      string // the steps, or in terse answers the conditions
}

func (o *Outcome) key(terse bool) outcomeKey {
	k := outcomeKey{verdict: o.Verdict, src: netip.AddrPortFrom(o.Src, o.SrcPort), dst: netip.AddrPortFrom(o.Dst, o.DstPort), reason: o.Reason}
	if terse {
		k.nat, k.way = [2]bool{o.DNAT, o.Masquerade}, strings.Join(o.Conditions, "\n")
		return k
	}
	k.way = o.way()
	return k
}

// way is the steps of an outcome, and what they did where that is not the same
// always.
func (o *Outcome) way() string {
	var b strings.Builder
	if o.ct.ipvs {
		// A client that IPVS remembers takes the same way as a new one.
		b.WriteString(strings.Join(o.Conditions, "\n"))
	}
	for i := range o.Steps {
		s := &o.Steps[i]
		b.WriteByte('\n')
		b.WriteString(s.Table)
		b.WriteByte(byte('0' + s.Hook))
		b.WriteByte(byte('0' + s.Variant))
		b.WriteString(s.Chain)
		b.WriteByte('/')
		b.WriteString(strconv.Itoa(s.Rule))
		if s.Variant == netfilter.Native {
			// What a rule does may depend on an element.
			b.WriteByte(byte('A' + s.Action))
			b.WriteString(s.Target)
			if s.Partly {
				b.WriteByte('~')
			}
		}
	}
	return b.String()
}

// notes is a list of assumptions without repetition.
type notes struct {
	list []string
	seen map[string]bool
}

func (n *notes) add(s string) {
	if n.seen[s] {
		return
	}
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	n.seen[s] = true
	n.list = append(n.list, s)
}

// indexFrom is the number of rules from which a chain gets an index.
const indexFrom = 16

// index finds the rules of a long chain that can match: those for one exact
// destination, those for one destination port, and the rest. A rule that the
// index leaves out fails at -d or --dport, before any match with a side
// effect.
type index struct {
	byDst  map[netip.Addr][]int32
	byPort map[uint16][]int32
	rest   []int32
}

// newIndex sorts the rules of a long chain by what only few packets have: a destination,
// else a port.
func newIndex(c *netfilter.Chain) *index {
	ix := &index{byDst: map[netip.Addr][]int32{}, byPort: map[uint16][]int32{}}
	for i := range c.Rules {
		ms := c.Rules[i].Matches
		if p, ok := exactDst(ms); ok {
			ix.byDst[p] = append(ix.byDst[p], int32(i))
		} else if p, ok := exactPort(ms); ok {
			ix.byPort[p] = append(ix.byPort[p], int32(i))
		} else {
			ix.rest = append(ix.rest, int32(i))
		}
	}
	return ix
}

// candidates lists the rules that may match, in order.
func (ix *index) candidates(p *packet, buf []int32) []int32 {
	buf = append(buf[:0], ix.rest...)
	buf = append(buf, ix.byDst[p.dst]...)
	buf = append(buf, ix.byPort[p.dport]...)
	slices.Sort(buf)
	return buf
}
