package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/lab"
)

// A product is kube-proxy or Portolan in one mode.
type product struct {
	peer    bool
	mode    string      // "iptables" or "nftables"
	variant lab.Variant // of iptables, which both meet on the node
}

func (p product) String() string {
	name := "portolan"
	if p.peer {
		name = "kube-proxy"
	}
	if p.mode == "iptables" {
		return fmt.Sprintf("%s-%s-%s", name, p.mode, p.variant)
	}
	return name + "-" + p.mode
}

var (
	peerLegacy, peerNFT = product{true, "iptables", lab.Legacy}, product{true, "iptables", lab.NFT}
	ownLegacy, ownNFT   = product{false, "iptables", lab.Legacy}, product{false, "iptables", lab.NFT}
	peerTables          = product{true, "nftables", lab.Legacy}
	ownTables           = product{false, "nftables", lab.Legacy}
	products            = []product{peerLegacy, peerNFT, ownLegacy, ownNFT, peerTables, ownTables}
)

// swaps are what follows what on one node. Beside means that the next one is started
// and has written its rules before the one before is ended.
var swaps = []struct {
	beside bool
	steps  []product
}{
	{true, []product{peerLegacy, ownLegacy, peerLegacy}},
	{false, []product{ownLegacy, peerLegacy, ownLegacy}},
	{false, []product{peerNFT, ownNFT, peerNFT}},
	{true, []product{peerTables, ownTables, peerTables}},
	{false, []product{ownTables, peerTables, ownTables}},
	{true, []product{peerLegacy, ownTables, peerLegacy}},
	{false, []product{peerTables, ownLegacy, peerTables}},
	{false, []product{ownLegacy, ownTables, ownLegacy}},
	{false, []product{ownLegacy, ownTables, peerTables}},   // the way around the gap
	{false, []product{peerLegacy, peerTables, peerLegacy}}, // the gap, with nobody else there
}

// gap tells of the change that kube-proxy makes with a gap, whoever was there before:
// in nftables mode it removes the rules of iptables first of all, and writes its own
// when it knows the Services. In iptables mode it does the same to its own tables.
func gap(before, next product) bool {
	return before.mode == "iptables" && next == peerTables || before == peerTables && next.peer && next.mode == "iptables"
}

// alone is what each product writes where nobody was before: on nodes from that number
// on, one for each.
func (w *swapWorld) alone(from int) map[product]rules {
	var mu sync.Mutex
	alone := map[product]rules{}
	w.t.Run("alone", func(t *testing.T) {
		for i, p := range products {
			t.Run(p.String(), func(t *testing.T) {
				t.Parallel()
				w, i := w.as(t), from+i
				w.launch(i, 0, p).written()
				r := w.rulesOf(i)
				mu.Lock()
				defer mu.Unlock()
				alone[p] = r
			})
		}
	})
	return alone
}

// TestSwap: one proxy takes a node over from another without a call that fails, and
// no rule of the other is left: the node's rules are those that the newcomer writes
// on an empty node, and it alone is heeded when endpoints change.
func TestSwap(t *testing.T) {
	w := newSwapWorld(t, len(swaps)+len(products))
	alone := w.alone(len(swaps))
	for i, s := range swaps {
		names := make([]string, len(s.steps))
		for step, p := range s.steps {
			names[step] = p.String()
		}
		how := "after"
		if s.beside {
			how = "beside"
		}
		t.Run(strings.Join(names, "_")+"_"+how, func(t *testing.T) {
			t.Parallel()
			w := w.as(t)
			running := w.launch(i, 0, s.steps[0])
			running.written()
			traffic := w.callAlways(i)
			for step, next := range s.steps[1:] {
				what := names[step] + " to " + names[step+1]
				old := running
				if !s.beside {
					old.stop()
				}
				running = w.launch(i, step+1, next)
				running.written()
				if s.beside {
					old.stop()
				}
				if next.peer {
					w.removeOwn(i, s.steps[step])
				}
				w.moveTo(i, 1-step%2)
				w.allAnswer(i, 1-step%2, what)
				w.settles(i, alone[next], what) // what the two wrote beside each other goes with the next change
				calls, failures := traffic.sum()
				t.Logf("%s: %d calls, %d failures", what, calls, len(failures))
				if s.steps[step].peer && next == peerTables && gap(s.steps[step], next) && len(failures) == 0 {
					t.Errorf("%s: kube-proxy has no gap any more: then there must be none after Portolan either", what)
				}
				for _, f := range failures {
					if !gap(s.steps[step], next) {
						t.Errorf("%s: %s", what, f)
					}
				}
			}
			traffic.end()
		})
	}
}

// rules are the rules of a node: those of Services and of nobody else.
type rules map[string]bool

// settles waits until the rules of a node are as they should be.
func (w *swapWorld) settles(i int, want rules, what string) {
	w.t.Helper()
	var differences []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if differences = w.differences(i, want); len(differences) == 0 {
			return
		}
	}
	for _, d := range differences[:min(len(differences), 20)] {
		w.t.Errorf("%s: %s", what, d)
	}
}

func (w *swapWorld) differences(i int, want rules) (out []string) {
	have := w.rulesOf(i)
	for _, line := range slices.Sorted(maps.Keys(have)) {
		if !want[line] {
			out = append(out, "left over: "+line)
		}
	}
	for _, line := range slices.Sorted(maps.Keys(want)) {
		if !have[line] {
			out = append(out, "missing: "+line)
		}
	}
	return out
}

// traffic calls a Service on all its addresses until it ends.
type traffic struct {
	stop    context.CancelFunc
	callers sync.WaitGroup

	mu       sync.Mutex
	calls    int
	failures []string
}

// sum counts the calls since it was asked last, and tells of those that failed.
func (f *traffic) sum() (int, []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls, failures := f.calls, f.failures
	f.calls, f.failures = 0, nil
	return calls, failures
}

func (f *traffic) end() {
	f.stop()
	f.callers.Wait()
}

// always calls again and again. The pace leaves the machine to others, too.
func (f *traffic) always(ctx context.Context, what string, call func() lab.Outcome) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for {
		o := call()
		f.mu.Lock()
		f.calls++
		if o.Verdict != lab.Answered {
			f.failures = append(f.failures, fmt.Sprintf("%s: %v", what, o))
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
	}
}

// callAlways calls Service i: new TCP connections, and datagrams from one source port
// each.
func (w *swapWorld) callAlways(i int) *traffic {
	ctx, stop := context.WithCancel(w.t.Context())
	f := &traffic{stop: stop}
	for _, r := range w.ways(i) {
		f.callers.Go(func() {
			f.always(ctx, "tcp "+r.name, func() lab.Outcome { return r.from.Dial("tcp", r.to, patience) })
		})
		conn, err := r.from.Open(ctx, lab.Call{Proto: "udp", To: r.to})
		if err != nil {
			w.t.Fatalf("udp %s: %v", r.name, err)
		}
		f.callers.Go(func() {
			defer conn.Close()
			f.always(ctx, "udp "+r.name, func() lab.Outcome { return askTwice(conn) })
		})
	}
	w.t.Cleanup(f.end)
	return f
}

// askTwice asks again when nothing was heard, as whoever uses datagrams must: when a
// proxy deletes the conntrack entry of an endpoint that is gone, the answer that is
// under way is lost. What nobody translates is refused, and is not asked again.
func askTwice(conn *lab.Conn) lab.Outcome {
	o := conn.Ask(2 * time.Second)
	if o.Verdict == lab.TimedOut {
		o = conn.Ask(5 * time.Second)
	}
	return o
}

// allAnswer waits until only one pod answers new connections, whichever way they come.
func (w *swapWorld) allAnswer(i, pod int, what string) {
	w.t.Helper()
	name := fmt.Sprintf("pod-%d-%d", i+1, pod+1)
	deadline := time.Now().Add(patience)
	for _, r := range w.ways(i) {
		for in := 0; in < 6; in++ {
			o := r.from.Dial("tcp", r.to, patience)
			if o.Verdict == lab.Answered && o.Pod == name {
				continue
			}
			if time.Now().After(deadline) {
				w.t.Errorf("%s: %s still %v, want %s: somebody else's rules are heeded", what, r.name, o, name)
				return
			}
			in = -1
		}
	}
}

// A way is an address of a Service, and who calls it.
type way struct {
	name string
	from *lab.Host
	to   netip.AddrPort
}

func (w *swapWorld) ways(i int) []way {
	at := func(ip string, port int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(port))
	}
	node := &w.Node(fmt.Sprintf("node%d", i+1)).Host
	return []way{
		{"client to ClusterIP", w.Client, at(fmt.Sprintf("10.96.%d.10", i+1), 80)},
		{"client to ClusterIP, IPv6", w.Client, at(fmt.Sprintf("fd00:96::%d10", i+1), 80)},
		{"client to NodePort", w.Client, netip.AddrPortFrom(node.Addrs[0], uint16(30000+i))},
		{"client to load balancer IP", w.Client, at(fmt.Sprintf("198.51.100.%d", 16*i+1), 80)},
		{"node to ClusterIP", node, at(fmt.Sprintf("10.96.%d.10", i+1), 80)},
	}
}
