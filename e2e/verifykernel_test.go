package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"portolan/lab"
	"portolan/netfilter"
	"portolan/netfilter/iptsave"
	"portolan/netfilter/nfttext"
	"portolan/trace"
	"portolan/verify"
)

// mutationsOfEach is how many mutations of each kind of rules the kernel judges.
const mutationsOfEach = 105

// TestVerifyMutations loads mutations of correct rules into a kernel and sends
// packets: does what changes show, and nothing else? Of the mutations that change
// what becomes of some client verify must find at least 95 %, and of the others it
// must call none an error. The mutations are the same in every run.
func TestVerifyMutations(t *testing.T) {
	t.Parallel()
	for _, k := range []mutated{{name: "iptables of kube-proxy's layout", backend: iptablesBackend()}, {name: "nftables of kube-proxy", backend: backends[2], kubeProxy: true}, {name: "nftables of Portolan", backend: backends[2]}} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			k.t = t
			k.run()
		})
	}
}

func iptablesBackend() portolan {
	if backends[0].variant.Available() {
		return backends[0]
	}
	return backends[1]
}

// mutated is one kind of rules.
type mutated struct {
	name      string
	backend   portolan
	kubeProxy bool // the table is kube-proxy's

	t      *testing.T
	c      *cluster
	node   *lab.Node
	paper  *paperNode
	probes []*asking
	passed map[string]bool // of sentOn, by the correct rules
}

func (k *mutated) run() {
	t := k.t
	data, err := os.ReadFile("testdata/base/mutated.txtar")
	if err != nil {
		t.Fatal(err)
	}
	s, err := parseScenario("mutated", data)
	if err != nil {
		t.Fatal(err)
	}
	k.c = newCluster(t, k.backend, s)
	k.node = k.c.Node("node1")
	k.quiet()
	rules := k.rules()
	if err := k.load(rules); err != nil {
		t.Fatal(err)
	}
	k.paper = k.c.onPaper(k.backend).nodes["node1"]
	r := k.verify(rules)
	for _, f := range r.Findings {
		t.Fatalf("the rules as they are: %s %s %s", f.Code, f.Object, f.Actual)
	}
	k.probes = k.c.probes(r, k.paper.model)
	if different := observeAll(k.probes, observation{learn: true, least: 40, most: 40}); len(different) > 0 {
		t.Fatal(different)
	}
	k.probes = slices.DeleteFunc(k.probes, func(p *asking) bool { return !p.settled() })
	k.passed = k.sentOn()
	if different := k.observe(quickly); len(different) > 0 {
		t.Fatalf("the rules as they are differ from themselves: %v", different)
	}
	for p, outcomes := range k.firstCalls(rules) {
		p.first = outcomes
	}
	k.mutations(rules)
	// What mutations lost is not lost by the backend.
	if err := k.load(rules); err != nil {
		t.Error(err)
	}
}

// firstCalls loads rules many times, so that nobody is remembered, and lets the
// clients that would be make one call each.
func (k *mutated) firstCalls(text string) map[*asking]map[string]bool {
	out := map[*asking]map[string]bool{}
	for range 14 {
		if err := k.load(text); err != nil {
			k.t.Fatal(err)
		}
		for _, p := range k.probes {
			if !p.once() {
				continue
			}
			if out[p] == nil {
				out[p] = map[string]bool{}
			}
			first := p.try(p.from[0])
			key := outcomeOf(p, first)
			if again := p.try(p.from[0]); again.Pod != first.Pod {
				key += ", then another"
			}
			out[p][key] = true
		}
	}
	return out
}

// differentFirst lists what first calls show that is not as it was.
func (k *mutated) differentFirst(text string) (out []string) {
	for p, now := range k.firstCalls(text) {
		if !maps.Equal(now, p.first) {
			out = append(out, fmt.Sprintf("%s at %s: %v instead of %v", p.client, p.service, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(p.first))))
		}
	}
	return out
}

// quiet stops the proxies, which would mend what is mutated, and takes the rules of
// the other node away: clients there come untranslated. The other node reaches
// external addresses by this one.
func (k *mutated) quiet() {
	for _, stop := range k.c.stops {
		if err := stop(); err != nil {
			k.t.Fatal(err)
		}
	}
	other := k.c.Node("node2")
	if out, err := k.backend.command(k.t.Context(), other, "cleanup").CombinedOutput(); err != nil {
		k.t.Fatalf("cleanup: %v\n%s", err, out)
	}
	if err := other.Do(func() error {
		_, to, err := net.ParseCIDR("203.0.113.0/24")
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: to, Gw: k.node.Addrs[0].AsSlice()})
	}); err != nil {
		k.t.Fatal(err)
	}
}

// quickly is how every mutation is observed.
var quickly = observation{least: 4, most: 60}

// observe lists what is different from the correct rules: what clients see and, where
// they see nothing, what this node has sent on.
func (k *mutated) observe(o observation) []string {
	out := observeAll(k.probes, o)
	if len(out) > 0 {
		return out
	}
	for key := range k.sentOn() {
		if !k.passed[key] {
			out = append(out, "sent on: "+key)
		}
	}
	return out
}

// sentOn lists the translated connections that this node has let pass, of clients
// that are not answered: where they call and where they are sent.
func (k *mutated) sentOn() map[string]bool {
	silent := map[netip.AddrPort]bool{}
	for _, p := range k.probes {
		for key := range p.base {
			if !strings.HasPrefix(key, "answered") {
				silent[p.call.To] = true
			}
		}
	}
	out := map[string]bool{}
	if err := k.node.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, netlink.FAMILY_V4)
		for _, f := range flows {
			src, _ := netip.AddrFromSlice(f.Forward.SrcIP.To4())
			dst, _ := netip.AddrFromSlice(f.Forward.DstIP.To4())
			to, _ := netip.AddrFromSlice(f.Reverse.SrcIP.To4())
			if called := netip.AddrPortFrom(dst, f.Forward.DstPort); silent[called] && to != dst {
				out[fmt.Sprintf("%v at %v/%d to %v:%d", src, called, f.Forward.Protocol, to, f.Reverse.SrcPort)] = true
			}
		}
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return out
}

// rules are the correct ones of node1.
func (k *mutated) rules() string {
	switch {
	case k.kubeProxy:
		b, err := os.ReadFile(filepath.Join("..", "testdata", "nft", "kube-proxy.nft"))
		if err != nil {
			k.t.Fatal(err)
		}
		text, _, _ := strings.Cut(string(b), "\ntable ip6 ")
		return kubeProxyTable(text)
	case k.backend.mode == "nftables":
		return k.c.table(k.t, k.node, "ip")
	}
	text, err := save(k.t.Context(), k.node, k.backend.variant, "iptables-save")
	if err != nil {
		k.t.Fatal(err)
	}
	return text
}

// kubeProxyTable is the table of testdata with the addresses of the lab.
func kubeProxyTable(text string) string {
	return strings.NewReplacer("10.244.0.4 . 10.244.0.4 . tcp . 8443", "10.244.1.8 . 10.244.1.8 . tcp . 8443", "10.244.0.4:8443", "10.244.1.8:8443", "10.244.1.7", "10.244.2.7", "10.244.0.0/16", "10.244.0.0/16", "10.244.0.", "10.244.1.", "203.0.113.0/24", "192.0.2.192/29").Replace(text) + "\n"
}

// load makes a text the rules of node1; old connections are forgotten.
func (k *mutated) load(text string) error {
	name, args := "iptables-restore", []string{}
	if k.backend.mode == "nftables" {
		name, args = "nft", []string{"-f", "-"}
		text = "add table ip portolan\ndelete table ip portolan\nadd table ip kube-proxy\ndelete table ip kube-proxy\n" + text
	}
	cmd := k.node.Command(k.t.Context(), k.backend.variant, name, args...)
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return errors.Join(forgetFlows(k.node), k.node.Do(forgetClients))
}

// forgetClients empties the lists of xt_recent.
func forgetClients() error {
	lists, err := filepath.Glob("/proc/thread-self/net/xt_recent/*")
	for _, file := range lists {
		err = errors.Join(err, os.WriteFile(file, []byte("/\n"), 0))
	}
	return err
}

// verify checks a text.
func (k *mutated) verify(text string) verify.Report {
	tables, err := parseRules(k.backend.mode, "rules", text, netfilter.IPv4)
	if err != nil {
		k.t.Fatalf("%v\n%s", err, text)
	}
	h := *k.paper.trace.Host()
	h.Tables = tables
	return verify.Verify(verify.Input{Tracer: trace.New(&h, trace.Options{Reply: true}), Services: k.paper.model})
}

// score counts what came of mutations.
type score struct{ refused, changed, found, same, errors int }

func (k *mutated) mutations(text string) {
	t := k.t
	read := readSaved
	if k.backend.mode == "nftables" {
		read = readTable
	}
	r := read(text)
	rnd := rand.New(rand.NewPCG(20, 26))
	var n score
	seen := map[string]bool{}
	for n.changed+n.same < mutationsOfEach {
		mutant, what := r.mutate(rnd)
		if seen[mutant] || mutant == strings.Join(r.lines, "\n") {
			continue
		}
		seen[mutant] = true
		if err := k.load(mutant); err != nil {
			n.refused++
			continue
		}
		k.judge(mutant, what, &n)
	}
	k.c.count("verify mutations", n.changed+n.same)
	t.Logf("%d mutations: %d change what becomes of a client, %d of them found; %d change nothing, %d of them called an error; the kernel refused %d more", n.changed+n.same, n.changed, n.found, n.same, n.errors, n.refused)
	if 20*n.found < 19*n.changed || n.errors > 0 {
		t.Errorf("%d of %d found, %d false errors", n.found, n.changed, n.errors)
	}
}

// judge holds the kernel's word about loaded rules against that of verify.
func (k *mutated) judge(mutant, what string, n *score) {
	report := k.verify(mutant)
	different := k.observe(quickly)
	var findings []string
	found, wrong := false, false
	for _, f := range report.Findings {
		found = found || f.Severity >= verify.Warning
		wrong = wrong || f.Severity == verify.Error
		findings = append(findings, fmt.Sprintf("%s %s %s: %s", f.Severity, f.Code, f.Object, f.Actual))
		if f.Code == verify.SharesUneven && len(different) == 0 {
			different = k.uneven(f)
		}
	}
	if !found && len(different) > 0 { // or the machine was busy
		if err := k.load(mutant); err != nil {
			k.t.Fatal(err)
		}
		different = k.observe(quickly)
	}
	if wrong && len(different) == 0 {
		different = append(k.differentFirst(mutant), k.answersAt(report.Findings)...)
	}
	if wrong && len(different) == 0 {
		different = k.observe(observation{least: 16, most: 80})
	}
	switch {
	case len(different) > 0 && found:
		n.changed, n.found = n.changed+1, n.found+1
	case len(different) > 0:
		n.changed++
		k.t.Logf("not found: %s\n\t%s", what, strings.Join(different, "\n\t"))
	case wrong:
		n.same, n.errors = n.same+1, n.errors+1
		k.t.Logf("no change: %s\n\t%s", what, strings.Join(findings, "\n\t"))
	default:
		n.same++
	}
}

// answersAt lists the addresses that rules are said to answer for without being asked
// to, where they do.
func (k *mutated) answersAt(list []verify.Finding) (out []string) {
	for _, f := range list {
		if f.Code != verify.FrontendStale {
			continue
		}
		to, proto, _ := strings.Cut(f.Object, "/")
		for _, from := range []string{"client", "node1", "pod:visitor"} {
			p := asking{from: []caller{{host: k.c.host(from)}}, call: lab.Call{Proto: proto, To: netip.MustParseAddrPort(to)}}
			if o := p.try(p.from[0]); o.Verdict == lab.Answered {
				out = append(out, f.Object+": "+outcomeOf(&p, o))
			}
		}
	}
	return out
}

// uneven asks the kernel about shares that verify calls uneven.
func (k *mutated) uneven(f verify.Finding) []string {
	for _, p := range k.probes {
		if p.service != f.Object || len(p.base) < 2 {
			continue
		}
		const calls = 150
		for outcome, count := range p.shares(calls) {
			equal := float64(calls) / float64(len(p.base))
			if math.Abs(float64(count)-equal) > 4*math.Sqrt(equal*(1-1/float64(len(p.base)))) {
				return []string{fmt.Sprintf("%d of %d calls: %s", count, calls, outcome)}
			}
		}
	}
	return nil
}

// parseRules reads a listing of a mode.
func parseRules(mode, name, text string, family netfilter.Family) ([]*netfilter.Table, error) {
	if mode == "nftables" {
		d, err := nfttext.Parse(name, text)
		return d.Tables, err
	}
	d, err := iptsave.Parse(name, text, iptsave.Options{Family: family})
	return d.Tables, err
}
