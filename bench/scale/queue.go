package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"portolan/bench/figures"
)

// A proxy is what one sync costs it, and how often it may begin one.
type proxy struct {
	name    string
	fixed   time.Duration // a sync, whatever changed
	each    time.Duration // more for each change in it
	minSync time.Duration // from the start of a sync to that of the next
}

// proxies are those at 45,000 Services. What kube-proxy's sync costs was measured at
// 5,000 and 10,000 Services (CPU of a change, docs/performance.md) and grows with
// their number: 34 microseconds for each of them in nftables mode, 163 in iptables
// mode. Portolan's is the same at every size; what each change adds is from storms
// of 100 changes a second.
var proxies = []proxy{
	{"Portolan, nftables", time.Millisecond, 800 * time.Microsecond, 10 * time.Millisecond},
	{"kube-proxy, nftables", 45000 * 34 * time.Microsecond, 300 * time.Microsecond, time.Second},
	{"kube-proxy, iptables-legacy", 45000 * 163 * time.Microsecond, 300 * time.Microsecond, time.Second},
}

// outcome is how a proxy keeps up.
type outcome struct {
	delay figures.Values // of changes, seconds
	busy  float64        // share of the time
	syncs float64        // a second
}

// simulate lets changes arrive at random for some minutes; each waits for the next
// sync, which takes all that have arrived by its start.
func simulate(p proxy, rate float64, seed uint64) outcome {
	const minutes = 5
	random := rand.New(rand.NewPCG(seed, 1))
	end := (minutes * time.Minute).Seconds()
	var o outcome
	var waiting []float64 // arrival times
	next := random.ExpFloat64() / rate
	for now, syncs := 0.0, 0; ; syncs++ {
		if len(waiting) == 0 {
			now = max(now, next) // nothing to do until then
		}
		for ; next <= now; next += random.ExpFloat64() / rate {
			waiting = append(waiting, next)
		}
		if now >= end {
			o.busy, o.syncs = o.busy/now, float64(syncs)/now
			o.delay = figures.Sorted(o.delay)
			return o
		}
		took := p.fixed.Seconds() + p.each.Seconds()*float64(len(waiting))
		for _, arrived := range waiting {
			o.delay = append(o.delay, now+took-arrived)
		}
		waiting = waiting[:0]
		o.busy += took
		now += max(took, p.minSync.Seconds())
	}
}

// behind is the table of how far behind the proxies are.
func behind(c cluster) string {
	text := "| proxy on a node | changes a second | syncs a second | share of a core | change in the kernel after, median | p99 |\n|---|---|---|---|---|---|\n"
	for _, p := range proxies {
		for _, rate := range []float64{c.rate / 100, c.rate / 10, c.rate} {
			o := simulate(p, rate, 1)
			text += fmt.Sprintf("| %s | %s | %s | %s %% | %s s | %s s |\n", p.name, figures.Number(rate), figures.Number(o.syncs),
				figures.Number(100*o.busy), figures.Number(o.delay.Median()), figures.Number(o.delay.Quantile(0.99)))
		}
	}
	return text
}
