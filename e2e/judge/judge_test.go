package judge

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan/lab"
	"portolan/netfilter"
	"portolan/trace"
)

const (
	rounds       = 10 // of each variant
	servicesEach = 50
	batches      = 3 // of each round
	batchSize    = 100
	enoughCases  = 1000
	leastShare   = 5 // percent of the cases, for each kind
)

// TestKernelJudge: generated Services, settings and foreign rules on both variants
// of iptables, and generated packets. The verdict, the addresses, the marks, the
// interfaces and each rule that trace names are those of the kernel.
func TestKernelJudge(t *testing.T) {
	needsRoot(t)
	var table tally
	eachVariant(t, rounds, func(t *testing.T, v lab.Variant, seed uint64) { judgeRound(t, v, seed, &table) })
	summary.add(table.String())
	if filtered() {
		return
	}
	if table.cases < enoughCases {
		t.Errorf("%d cases, want %d", table.cases, enoughCases)
	}
	for _, k := range kinds {
		if table.kinds[k]*100 < table.cases*leastShare {
			t.Errorf("%s is in %d of %d cases, want %d %%", k, table.kinds[k], table.cases, leastShare)
		}
	}
}

// eachVariant plays rounds on both variants of iptables beside each other, each with a
// seed of its own, and returns when all have ended. A round is a test, so that its lab
// goes before the next one comes.
func eachVariant(t *testing.T, rounds uint64, round func(t *testing.T, v lab.Variant, seed uint64)) {
	t.Run("variants", func(t *testing.T) {
		for _, v := range []lab.Variant{lab.Legacy, lab.NFT} {
			t.Run(string(v), func(t *testing.T) {
				if !v.Available() {
					t.Skipf("no iptables of variant %s on this machine", v)
				}
				t.Parallel()
				for i := range rounds {
					t.Run(fmt.Sprint("seed-", seed+i), func(t *testing.T) { round(t, v, seed+i) })
				}
			})
		}
	})
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and their rules need root")
	}
}

// shown bounds what a failed round prints.
const shown = 3

func judgeRound(t *testing.T, v lab.Variant, seed uint64, table *tally) {
	w := newWorld(t, v)
	r, err := w.prepare(t.Context(), newGenerator(seed), servicesEach)
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	book := func(findings []*finding, more ...string) {
		for _, f := range findings {
			table.add(f, append(r.kinds(f), more...))
			if len(f.diffs) == 0 {
				continue
			}
			if wrong++; wrong <= shown {
				t.Errorf("%v", f)
			}
		}
	}
	var last []*finding
	for range batches {
		probes, err := r.probes(batchSize)
		if err != nil {
			t.Fatal(err)
		}
		if last, err = r.batch(r.bench, probes); err != nil {
			t.Fatal(err)
		}
		book(last)
	}
	again, err := r.repeat(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	book(again, kindAgain)
	answers, err := r.answers(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	book(answers, kindAnswer)
	if wrong > 0 {
		t.Errorf("%d differences; proxy %s", wrong, strings.Join(r.args, " "))
	}
}

// The kinds of cases that the random ones must not lack.
const (
	kindDNAT      = "DNAT"
	kindHairpin   = "hairpin"
	kindDrop      = "drop"
	kindReject    = "reject"
	kindLocalhost = "localhost"
	kindInvalid   = "INVALID"
	kindForeign   = "foreign chain"
	kindMark      = "foreign mark"
	kindLocal     = "policy Local"
	kindAgain     = "second packet"
	kindAnswer    = "answer"
)

var kinds = []string{kindDNAT, kindHairpin, kindDrop, kindReject, kindLocalhost, kindInvalid, kindForeign, kindMark, kindLocal, kindAgain, kindAnswer}

// kinds tells what a case was, by what the kernel did.
func (r *round) kinds(f *finding) (out []string) {
	p, k := f.probe, f.fact
	add := func(kind string, is bool) {
		if is {
			out = append(out, kind)
		}
	}
	arrived := k.verdict == trace.Forwarded || k.verdict == trace.Output || k.verdict == trace.Input
	add(kindDNAT, arrived && k.dst.IsValid() && k.dst != p.dst)
	add(kindHairpin, k.dst == p.src && k.dst != p.dst && slices.Contains(k.who, p.from))
	add(kindDrop, k.verdict == trace.Dropped)
	add(kindReject, k.verdict == trace.Rejected)
	add(kindLocalhost, p.dst.IsLoopback())
	begins := p.flags == netfilter.SYN || r.loose && p.flags&^netfilter.PSH == netfilter.ACK
	add(kindInvalid, p.proto == netfilter.TCP && !begins && !f.known)
	add(kindLocal, p.policyLocal)
	foreign, mark := false, false
	for _, m := range f.way {
		if netfilter.HookOfChain(m.chain) != netfilter.NoHook || strings.HasPrefix(m.chain, "KUBE-") {
			continue
		}
		foreign = true
		if rule := r.bench.rules.rule(m.event.family, m.place); rule != nil {
			_, is := rule.Target.(netfilter.SetMark)
			mark = mark || is
		}
	}
	add(kindForeign, foreign)
	add(kindMark, mark)
	return out
}

// tally counts cases by kind and verdict.
type tally struct {
	mu       sync.Mutex
	cases    int
	wrong    int
	unheard  int
	rules    int // that matched
	kinds    map[string]int
	verdicts map[string]int
}

func (t *tally) add(f *finding, kinds []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kinds == nil {
		t.kinds, t.verdicts = map[string]int{}, map[string]int{}
	}
	t.cases++
	t.rules += len(f.way)
	if len(f.diffs) > 0 {
		t.wrong++
	}
	if f.fact.unheard {
		t.unheard++
	}
	t.verdicts[f.fact.verdict.String()]++
	for _, k := range kinds {
		t.kinds[k]++
	}
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "%-28s %9s %9s\n", "kernel as judge", "cases", "percent")
	row := func(name string, n int) {
		fmt.Fprintf(&b, "%-28s %9d %9.1f\n", name, n, 100*float64(n)/float64(max(t.cases, 1)))
	}
	for _, k := range kinds {
		row(k, t.kinds[k])
	}
	for _, v := range []trace.Verdict{trace.Forwarded, trace.Output, trace.Input} {
		row("verdict "+v.String(), t.verdicts[v.String()])
	}
	row("refused, but not heard", t.unheard)
	row("differences", t.wrong)
	row("all", t.cases)
	fmt.Fprintf(&b, "%-28s %9d\n", "rules that matched", t.rules)
	return b.String()
}
