package judge

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"portolan/netfilter"
	"portolan/netfilter/live"
	"portolan/netfilter/nftjson"
	"portolan/trace"
)

var nftCases = flag.Int("nftcases", 120, "packets to send through random rules of nft")

// TestKernelAgreesOnNFT sends random packets through random rules of nft. The
// kernel's trace events name the rules that applied, one after the other; they
// must be the steps of one of the outcomes that trace gives, and the packet
// must come out as it says.
func TestKernelAgreesOnNFT(t *testing.T) { judgeNFT(t, false) }

func judgeNFT(t *testing.T, six bool) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	w := newWorld(t)
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("no nft here")
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_default_ttl", []byte("77"), 0); err != nil {
		t.Skipf("setting the TTL: %v", err)
	}
	j := &nftJudge{w: w, m: newMonitor(t), kinds: map[string]int{}, six: six}
	cases := *nftCases
	if six {
		j.wires6, j.local6 = w.addSix()
		cases = (cases + 1) / 2
	}
	for round := uint64(0); j.sent < cases && !t.Failed(); round++ {
		j.round(t, s+round, min(6, cases-j.sent))
	}
	t.Logf("%d packets, first seed %d, %d refused rules, kinds %v", j.sent, s, j.refused, j.kinds)
	for _, kind := range []string{"DNAT", "SNAT", "drop", "reject", "forward", "one outcome", "vmap", "mark", "10 rules"} {
		if cases >= 500 && j.kinds[kind]*100 < 3*j.sent {
			t.Errorf("%s in %d of %d packets, less than 3 %%", kind, j.kinds[kind], j.sent)
		}
	}
}

type nftJudge struct {
	w       *world
	m       *monitor
	sent    int
	refused int
	port    uint16
	kinds   map[string]int

	six    bool // in IPv6
	wires6 [3]*wire
	local6 int
}

// round loads one ruleset and sends some packets.
func (j *nftJudge) round(t *testing.T, seed uint64, n int) {
	r := rand.New(rand.NewPCG(seed, 2))
	p := generateNFT(r)
	tables := ""
	before := chance(r, 50)
	if chance(r, 33) && !j.six {
		// iptables-nft beside it, registered before or after.
		ip := generate(r)
		tables = ip.text()
		p.shots.targets, p.shots.nodePort = append(p.shots.targets, ip.targets...), append(p.shots.nodePort, ip.nodePort...)
	}
	rules := p.text()
	if j.six {
		rules = sixText(rules)
	}
	text := j.load(t, rules, tables, before)
	forward, bridge, rp := "1", "1", "0"
	switch r.IntN(12) {
	case 0:
		forward = "0"
	case 1:
		bridge = "0"
	case 2:
		rp = "1"
	}
	sysctls := map[string]string{"ipv4/ip_forward": forward, "bridge/bridge-nf-call-iptables": bridge, "ipv4/conf/eth0/rp_filter": rp}
	if j.six {
		sysctls = map[string]string{"ipv6/conf/all/forwarding": forward, "bridge/bridge-nf-call-ip6tables": bridge}
	}
	for file, v := range sysctls {
		if err := os.WriteFile("/proc/sys/net/"+file, []byte(v), 0); err != nil {
			t.Skipf("setting %s: %v", file, err)
		}
	}
	j.m.learn(t)
	h, err := live.Read(t.Context(), live.Options{NoFlows: true})
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if seed%2 == 1 {
		fromJSON(t, h)
	}
	tr := trace.New(h, trace.Options{MaxBranches: 3000})
	for range n {
		j.shoot(t, tr, p.shots.aim(r), seed)
		if t.Failed() {
			t.Logf("rules of seed %d, forward %s bridge-nf %s rp_filter %s:\n%s", seed, forward, bridge, rp, text)
			return
		}
	}
}

var refusedLine = regexp.MustCompile(`/dev/stdin:(\d+):`)

// load loads a ruleset and iptables' tables before or after it. Rules that nft
// refuses, for example because conditions contradict each other, are left out.
func (j *nftJudge) load(t *testing.T, text, tables string, before bool) string {
	t.Helper()
	// By itself: where nat is registered at its hooks follows from the first nat
	// chain there was.
	if out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	if before && tables != "" {
		if err := j.w.restore(netfilter.NFT, tables); err != nil {
			t.Fatalf("%v\n%s", err, tables)
		}
	}
	lines := strings.Split(text, "\n")
	for range 200 {
		cmd := exec.Command("nft", "-f", "/dev/stdin")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
		out, err := cmd.CombinedOutput()
		if err == nil && !before && tables != "" {
			if err := j.w.restore(netfilter.NFT, tables); err != nil {
				t.Fatalf("%v\n%s", err, tables)
			}
		}
		if err == nil {
			return strings.Join(lines, "\n") + tables
		}
		m := refusedLine.FindSubmatch(out)
		if m == nil {
			t.Fatalf("nft: %v: %s\n%s", err, out, strings.Join(lines, "\n"))
		}
		n, _ := strconv.Atoi(string(m[1]))
		at := n - 1
		if at < 0 || at >= len(lines) || !strings.HasPrefix(lines[at], "\t\t") || strings.HasPrefix(lines[at], "\t\ttype") {
			t.Fatalf("nft refuses line %d: %s\n%s", n, out, strings.Join(lines, "\n"))
		}
		lines[at] = "\t\tcounter"
		j.refused++
	}
	t.Fatal("nft refuses too many rules")
	return ""
}

// fromJSON takes the tables from the JSON listing instead of the text.
func fromJSON(t *testing.T, h *netfilter.Host) {
	t.Helper()
	out, err := exec.Command("nft", "-j", "list", "ruleset").Output()
	if err != nil {
		t.Fatal(err)
	}
	d, err := nftjson.Parse("json", string(out))
	if err != nil {
		t.Fatal(err)
	}
	h.Tables = slices.DeleteFunc(h.Tables, func(x *netfilter.Table) bool { return x.Variant == netfilter.Native })
	for _, x := range d.Tables {
		if err := h.AddTable(x); err != nil {
			t.Fatal(err)
		}
	}
	h.PreferIPTables()
}

// shoot sends one packet and compares.
func (j *nftJudge) shoot(t *testing.T, tr *trace.Tracer, s shot, seed uint64) {
	t.Helper()
	j.port++
	j.sent++
	d := s.datagram(j.port)
	send, wires, reads := j.w.send, j.w.wires, parse
	if j.six {
		d.src, d.dst = six(notLoopback(d.src)), six(notLoopback(d.dst))
		send, wires, reads = j.sendSix, j.wires6, parseSix
	}
	root := uint32(0)
	f := s.flow(d)
	f.UID = &root
	a := tr.Trace(f)
	j.m.drain(t, 0)
	lost := slices.ContainsFunc(a.Outcomes, func(o trace.Outcome) bool { return o.Verdict.Lost() })
	if err := send(s.wire, d, j.w.toward(s)); err != nil && !lost {
		t.Errorf("seed %d: %+v: sending: %v", seed, s, err)
		return
	}
	var got observed
	var ran []nftRule
	var why string
	for quiet := 0; quiet < 40; {
		more := j.m.drain(t, 20)
		ran = append(ran, more...)
		before := got.n
		got.take(arrivals(wires, reads, d.id))
		if len(more) > 0 || got.n != before {
			quiet = 0
			continue
		}
		quiet++
		for i := range a.Outcomes {
			if why = got.differsNFT(&a.Outcomes[i], ran); why == "" {
				j.count(&a, &a.Outcomes[i])
				return
			}
		}
	}
	t.Errorf("seed %d: %+v\nthe kernel: %s\n  %v\n%s", seed, s, got, ran, texts(tr.Host(), ran, steps(&a.Outcomes[0])))
	for i := range a.Outcomes {
		o := &a.Outcomes[i]
		if i == 5 {
			break
		}
		t.Errorf("trace: %s %s %s:%d -> %s:%d (%s) %v: %s\n  %v", o.Share.RatString(), o.Verdict, o.Src, o.SrcPort, o.Dst, o.DstPort, o.Reason, o.Doubts, got.differsNFT(o, ran), steps(o))
	}
}

// notLoopback is the node's address for 127.0.0.1, which has no counterpart
// that packets to others may come from.
func notLoopback(a netip.Addr) netip.Addr {
	if a.IsLoopback() {
		return netip.MustParseAddr(nodeAddr)
	}
	return a
}

// texts writes the first rules in which the kernel and trace differ.
func texts(h *netfilter.Host, ran, said []nftRule) string {
	for i := range max(len(ran), len(said)) {
		if i < len(ran) && i < len(said) && ran[i] == said[i] {
			continue
		}
		var b strings.Builder
		for who, rules := range map[string][]nftRule{"kernel": ran, "trace": said} {
			if i >= len(rules) {
				fmt.Fprintf(&b, "%s: the end\n", who)
				continue
			}
			r := rules[i]
			tab := h.Table(netfilter.IPv4, netfilter.Native, r.table)
			if strings.HasPrefix(r.table, "ip6 ") {
				tab = h.Table(netfilter.IPv6, netfilter.Native, r.table)
			}
			if tab == nil {
				tab = h.Table(netfilter.IPv4, netfilter.NFT, strings.TrimPrefix(r.table, "ip "))
			}
			fmt.Fprintf(&b, "%s: %s is %s\n", who, r, tab.Chain(r.chain).Rules[r.number-1].Text)
		}
		return b.String()
	}
	return ""
}

// steps are the rules of nft, and of iptables-nft, that applied in an outcome.
func steps(o *trace.Outcome) []nftRule {
	var out []nftRule
	for _, s := range o.Steps {
		switch {
		case s.Rule == 0 || s.Partly:
		case s.Variant == netfilter.Native:
			out = append(out, nftRule{s.Table, s.Chain, s.Rule})
		case s.Variant == netfilter.NFT:
			out = append(out, nftRule{"ip " + s.Table, s.Chain, s.Rule})
		}
	}
	return out
}

// differsNFT tells in what an outcome is not what the kernel did, "" if it is.
func (g observed) differsNFT(o *trace.Outcome, ran []nftRule) string {
	if len(o.Doubts) > 0 || o.Verdict == trace.Unknown {
		return "the outcome is not certain: " + strings.Join(o.Doubts, "; ")
	}
	want := steps(o)
	if n := len(want); o.Verdict == trace.Rejected && n > 0 && len(ran) > n && slices.Contains(ran[n-1:], want[n-1]) {
		// The answer walks through rules of its own, before or after the event
		// of the rule that made it.
		ran = append(slices.Clone(ran[:n-1]), want[n-1])
	}
	for i := range max(len(want), len(ran)) {
		if i >= len(want) || i >= len(ran) || want[i] != ran[i] {
			return fmt.Sprintf("another rule applied at place %d", i+1)
		}
	}
	return g.ends(o)
}

// count notes what kind of case it was.
func (j *nftJudge) count(a *trace.Answer, o *trace.Outcome) {
	n := len(steps(o))
	has := func(f func(trace.Step) bool) bool { return slices.ContainsFunc(o.Steps, f) }
	for kind, is := range map[string]bool{
		"iptables": has(func(s trace.Step) bool { return s.Variant == netfilter.NFT && s.Rule > 0 }),
		"DNAT":     o.DNAT, "SNAT": o.Masquerade, "reject": o.Verdict == trace.Rejected, "forward": o.Verdict == trace.Forwarded, "output": o.Verdict == trace.Output, "one outcome": len(a.Outcomes) == 1,
		"drop":      o.Verdict == trace.Dropped && (n == 0 || !strings.HasPrefix(steps(o)[n-1].table, "inet judge")),
		"delivered": n > 0 && steps(o)[n-1].chain == "last", "10 rules": n >= 10, "remembered": len(o.Conditions) > 0,
		"mark": has(func(s trace.Step) bool { return s.Action == trace.ActMark || strings.Contains(s.Note, "mark is now") }),
		"vmap": has(func(s trace.Step) bool { return strings.Contains(s.Text, "vmap") }), "notes": has(func(s trace.Step) bool { return s.Partly }),
	} {
		if is {
			j.kinds[kind]++
		}
	}
}
