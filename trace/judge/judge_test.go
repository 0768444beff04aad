package judge

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/netfilter"
	"portolan/netfilter/iptsave"
	"portolan/netfilter/live"
	"portolan/trace"
)

var (
	cases = flag.Int("cases", 120, "packets to send on each iptables variant")
	seed  = flag.Uint64("seed", 1, "seed of the random rules; 0 takes one from the clock")
)

// ruleKey names a rule in the kernel.
type ruleKey struct {
	variant netfilter.Variant
	table   string
	chain   string
	rule    int
}

// TestKernelAgrees sends random packets through random rules.
func TestKernelAgrees(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	for _, mode := range []string{"legacy", "nft", "both"} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			j := &judge{w: w, mode: mode, kinds: map[string]int{}}
			n := *cases
			if mode == "both" {
				n /= 4
			}
			for round := uint64(0); j.sent < n && !t.Failed(); round++ {
				j.round(t, s+round, min(8, n-j.sent))
			}
			t.Logf("%s: %d packets, first seed %d, kinds %v", mode, j.sent, s, j.kinds)
			if j.sent < n && !t.Failed() {
				t.Errorf("only %d packets were sent", j.sent)
			}
			for _, kind := range []string{"DNAT", "hairpin", "drop", "reject", "localhost", "INVALID", "foreign", "mark", "Local"} {
				if n >= 500 && j.kinds[kind]*100 < 5*j.sent {
					t.Errorf("%s in %d of %d packets, less than 5 %%", kind, j.kinds[kind], j.sent)
				}
			}
		})
	}
}

type judge struct {
	w     *world
	mode  string
	sent  int
	port  uint16
	kinds map[string]int
}

// round loads one set of rules and sends some packets.
func (j *judge) round(t *testing.T, seed uint64, n int) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := generate(r)
	if err := j.load(p); err != nil {
		t.Fatalf("seed %d: loading: %v\n%s", seed, err, p.text())
	}
	forward, bridge, rp := "1", "1", "0"
	switch r.IntN(12) {
	case 0:
		forward = "0"
	case 1:
		bridge = "0"
	case 2:
		rp = "1"
	}
	for file, v := range map[string]string{"ipv4/ip_forward": forward, "bridge/bridge-nf-call-iptables": bridge, "ipv4/conf/eth0/rp_filter": rp} {
		if err := os.WriteFile("/proc/sys/net/"+file, []byte(v), 0); err != nil {
			t.Skipf("setting %s: %v", file, err)
		}
	}
	h, err := live.Read(t.Context(), live.Options{NoFlows: true})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	tr := trace.New(h, trace.Options{})
	before := j.counters(t)
	for range n {
		before = j.shoot(t, tr, p, p.aim(r), before, seed)
		if t.Failed() {
			t.Logf("rules of seed %d, forward %s bridge-nf %s rp_filter %s:\n%s", seed, forward, bridge, rp, p.text())
			return
		}
	}
}

func (j *judge) load(p *plan) error {
	switch j.mode {
	case "legacy":
		return load(j.w, netfilter.Legacy, p.text())
	case "nft":
		return load(j.w, netfilter.NFT, p.text())
	}
	if err := load(j.w, netfilter.NFT, p.text("raw", "nat")); err != nil {
		return err
	}
	return load(j.w, netfilter.Legacy, p.text("mangle", "filter", "security"))
}

func load(w *world, v netfilter.Variant, rules string) error {
	if err := w.flush(v); err != nil {
		return err
	}
	return w.restore(v, rules)
}

// counters reads how often each rule has matched.
func (j *judge) counters(t *testing.T) map[ruleKey]uint64 {
	t.Helper()
	out := map[ruleKey]uint64{}
	for _, v := range []netfilter.Variant{netfilter.Legacy, netfilter.NFT} {
		if j.mode != "both" && j.mode != v.String() {
			continue
		}
		text, err := exec.Command("iptables-"+v.String()+"-save", "-c").Output()
		if err != nil {
			t.Fatal(err)
		}
		d, err := iptsave.Parse("save", string(text), iptsave.Options{Variant: v})
		if err != nil {
			t.Fatal(err)
		}
		for _, tab := range d.Tables {
			for _, c := range tab.Chains() {
				for i, rule := range c.Rules {
					out[ruleKey{v, tab.Name, c.Name, i + 1}] = rule.Counters.Packets
				}
			}
		}
	}
	return out
}

// shoot sends one packet and compares.
func (j *judge) shoot(t *testing.T, tr *trace.Tracer, p *plan, s shot, before map[ruleKey]uint64, seed uint64) map[ruleKey]uint64 {
	t.Helper()
	j.port++
	j.sent++
	d := s.datagram(j.port)
	a := tr.Trace(s.flow(d))
	if err := j.w.send(s.wire, d, j.w.toward(s)); err != nil && !a.Outcomes[0].Verdict.Lost() {
		t.Errorf("seed %d: %+v: sending: %v", seed, s, err)
		return before
	}
	var got observed
	deadline := time.Now().Add(10 * time.Second)
	var why string
	for {
		after := j.counters(t)
		got.take(arrivals(j.w.wires, parse, d.id))
		got.grew = diff(before, after)
		for i := range a.Outcomes {
			if why = got.differs(&a.Outcomes[i]); why == "" {
				j.count(&a.Outcomes[i], s)
				return after
			}
		}
		if time.Now().After(deadline) {
			break
		}
	}
	o := a.Outcomes[0]
	t.Errorf("seed %d: %+v: trace says %s %s:%d -> %s:%d (%s)\nthe kernel: %s\n  %s\n kernel rules: %v\n trace rules:  %v", seed, s, o.Verdict, o.Src, o.SrcPort, o.Dst, o.DstPort, o.Reason, got, why, names(got.grew), names(expected(&o)))
	return before
}

// observed is what the kernel did.
type observed struct {
	grew map[ruleKey]uint64
	wire int
	pkt  datagram
	n    int
}

func (g *observed) take(wire int, pkt datagram, n int) {
	if n > 0 {
		g.wire, g.pkt, g.n = wire, pkt, g.n+n
	}
}

func (g observed) String() string {
	if g.n == 0 {
		return "nothing came out"
	}
	return fmt.Sprintf("%s:%d -> %s:%d came out of w%d, %d times", g.pkt.src, g.pkt.sport, g.pkt.dst, g.pkt.dport, g.wire, g.n)
}

func diff(before, after map[ruleKey]uint64) map[ruleKey]uint64 {
	out := map[ruleKey]uint64{}
	for k, v := range after {
		if v != before[k] {
			out[k] = v - before[k]
		}
	}
	return out
}

// expected is how often the outcome's steps match each rule.
func expected(o *trace.Outcome) map[ruleKey]uint64 {
	out := map[ruleKey]uint64{}
	for _, s := range o.Steps {
		if s.Rule > 0 {
			out[ruleKey{s.Variant, s.Table, s.Chain, s.Rule}]++
		}
	}
	return out
}

// differs tells in what an outcome is not what the kernel did, "" if it is.
func (g observed) differs(o *trace.Outcome) string {
	if !o.Certain {
		return "the outcome is not certain: " + strings.Join(o.Doubts, "; ")
	}
	want := expected(o)
	if o.Verdict == trace.Rejected {
		// The answer walks through rules of its own.
		for k, n := range want {
			if g.grew[k] < n {
				return fmt.Sprintf("rule %v was not matched", k)
			}
		}
	} else if !maps.Equal(want, g.grew) {
		return "other rules matched"
	}
	return g.ends(o)
}

// ends tells in what the packet's end is not that of an outcome.
func (g observed) ends(o *trace.Outcome) string {
	leaves := o.Verdict == trace.Forwarded || o.Verdict == trace.Output
	switch {
	case leaves != (g.n == 1):
		return "it came out, or did not"
	case !leaves:
		return ""
	case g.pkt.src != o.Src || g.pkt.dst != o.Dst || g.pkt.dport != o.DstPort || (o.SrcPort != 0 && g.pkt.sport != o.SrcPort):
		return "other addresses"
	case podWire(o.Dst) != g.wire:
		return "another wire"
	}
	return ""
}

// podWire is the wire behind which an address is.
func podWire(a netip.Addr) int {
	if a.Is6() {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	return pods[a.String()]
}

func names(m map[ruleKey]uint64) []string {
	var out []string
	for k, n := range m {
		out = append(out, fmt.Sprintf("%s %s %s:%d x%d", k.variant, k.table, k.chain, k.rule, n))
	}
	slices.Sort(out)
	return out
}

// count notes what kind of case it was.
func (j *judge) count(o *trace.Outcome, s shot) {
	has := func(f func(trace.Step) bool) bool { return slices.ContainsFunc(o.Steps, f) }
	chain := func(prefix string) bool {
		return has(func(x trace.Step) bool {
			return strings.HasPrefix(x.Chain, prefix) || strings.HasPrefix(x.Target, prefix)
		})
	}
	for kind, is := range map[string]bool{
		"DNAT": o.DNAT, "drop": o.Verdict == trace.Dropped && !delivered(o), "reject": o.Verdict == trace.Rejected, "localhost": strings.HasPrefix(s.src, "127.") || strings.HasPrefix(s.dst, "127."),
		"INVALID": s.invalid, "hairpin": o.DNAT && o.Dst.String() == s.src, "foreign": chain("FOREIGN") || chain("POSTRTG") || chain("FWD") || chain("DOCKER"),
		"mark": has(func(x trace.Step) bool { return x.Action == trace.ActMark }), "Local": chain("EXL-"), "delivered": delivered(o), "bridged": slices.ContainsFunc(o.Hops, func(h trace.Hop) bool { return strings.HasPrefix(h.Route, "bridged") }),
	} {
		if is {
			j.kinds[kind]++
		}
	}
}

// delivered reports whether the packet reached the end of INPUT.
func delivered(o *trace.Outcome) bool {
	n := len(o.Steps)
	return n > 0 && o.Steps[n-1].Table == netfilter.Security
}
