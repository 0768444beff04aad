package judge

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"portolan/config"
	"portolan/lab"
	"portolan/netfilter"
	"portolan/netfilter/iptsave"
	"portolan/service"
	"portolan/source/kube"
	"portolan/trace"
)

const (
	threeWayRounds   = 6 // the same Services on each variant
	threeWayServices = 90
	enoughServices   = 500
)

// TestThreeWay: of generated Services, what package service decides, what trace
// says of the text that plan prints, what it says of the rules in the kernel, and
// what the kernel does with packets of every class of client, are one and the same.
func TestThreeWay(t *testing.T) {
	needsRoot(t)
	var done threeWays
	eachVariant(t, threeWayRounds, func(t *testing.T, v lab.Variant, seed uint64) { threeWayRound(t, v, seed, &done) })
	summary.add(done.String())
	if n := len(done.services); n < enoughServices && !filtered() {
		t.Errorf("%d Services, want %d", n, enoughServices)
	}
}

// threeWays counts.
type threeWays struct {
	mu       sync.Mutex
	services map[string]bool // seed and name
	cases    map[service.Verdict]int
	wrong    int
}

func (d *threeWays) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := 0
	var b strings.Builder
	fmt.Fprintf(&b, "%-28s %9s\n", "three-way", "")
	for _, v := range []service.Verdict{service.Forward, service.Reject, service.Drop} {
		fmt.Fprintf(&b, "%-28s %9d\n", v, d.cases[v])
		all += d.cases[v]
	}
	fmt.Fprintf(&b, "%-28s %9d\n%-28s %9d\n%-28s %9d\n", "differences", d.wrong, "Services", len(d.services), "all", all)
	return b.String()
}

// plain is a node without foreign rules, with what the model knows of it.
type plain struct {
	round
	node    service.Node
	planned *trace.Tracer // of the text that plan prints
	seed    uint64
}

func threeWayRound(t *testing.T, v lab.Variant, seed uint64, done *threeWays) {
	w := newWorld(t, v)
	r, err := w.preparePlain(t.Context(), seed, threeWayServices)
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.everything()
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for part := range slices.Chunk(list, 2*batchSize) {
		var probes []probe
		for _, c := range part {
			probes = append(probes, c.probe)
		}
		findings, err := r.batch(r.bench, probes)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range findings {
			r.hold(f, part[i], done)
			if len(f.diffs) == 0 {
				continue
			}
			if wrong++; wrong <= shown {
				t.Errorf("%v\tdecided: %v\n\tplanned: %v", f, part[i], outcomes(r.planned.Trace(r.flow(f.probe))))
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d differences; proxy %s", wrong, strings.Join(r.args, " "))
	}
}

// preparePlain draws Services and settings of the proxy, and has them programmed.
func (w *world) preparePlain(ctx context.Context, seed uint64, services int) (*plain, error) {
	g := newGenerator(seed)
	r := &plain{round: round{sender: sender{w: w, g: g}, args: g.args()}, seed: seed}
	objects := nodes()
	for i := range services {
		objects = append(objects, g.service(i)...)
	}
	text, err := documents(objects)
	if err != nil {
		return nil, err
	}
	if err := w.program(ctx, text, r.args); err != nil {
		return nil, err
	}
	if err := w.watch(ctx); err != nil {
		return nil, err
	}
	host, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	r.bench = newBench(newRuleset(host, w.variant, w.devices))
	settings, err := settingsOf(r.args, host)
	if err != nil {
		return nil, err
	}
	snapshot, err := w.model(ctx, settings)
	if err != nil {
		return nil, err
	}
	r.node, r.targets = snapshot.Node, targets(snapshot)
	planned := *host
	if planned.Tables, err = w.plan(ctx, r.args); err != nil {
		return nil, err
	}
	r.planned = trace.New(&planned, trace.Options{})
	return r, nil
}

// settingsOf reads the flags of the proxy the way its command does.
func settingsOf(args []string, h *netfilter.Host) (kube.Settings, error) {
	set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	if err := set.Parse(args); err != nil {
		return kube.Settings{}, fmt.Errorf("judge: %w", err)
	}
	c, _, err := flags.Config(config.FlagsFirst)
	if err != nil {
		return kube.Settings{}, fmt.Errorf("judge: %w", err)
	}
	s := kube.Settings{NodeName: judged, DetectMode: kube.DetectMode(c.DetectLocalMode), ClusterCIDRs: c.ClusterCIDRs, Bridge: c.Bridge, InterfacePrefix: c.InterfacePrefix,
		MasqueradeAll: c.MasqueradeAll, NodePortsPrimary: c.NodePortPrimary, NodePorts: service.NodePortAddresses{Prefixes: c.NodePortAddresses, Localhost: c.LocalhostNodePorts}}
	for _, in := range h.Interfaces {
		for _, a := range in.Addresses {
			s.NodePorts.Local = append(s.NodePorts.Local, a.Prefix.Addr())
		}
	}
	s.NodePorts.Localhost = s.NodePorts.AllowsLocalhost()
	return s, nil
}

// plan gives the tables that "portolan plan" prints for the node.
func (w *world) plan(ctx context.Context, args []string) (out []*netfilter.Table, err error) {
	for name, family := range map[string]netfilter.Family{"ipv4": netfilter.IPv4, "ipv6": netfilter.IPv6} {
		var text, complaint strings.Builder
		// In the node, whose addresses NodePorts may depend on.
		cmd := w.node.Command(ctx, w.variant, w.binary, append([]string{"plan", "--manifests", w.dir, "--hostname-override", judged, "--ip-family", name}, args...)...)
		cmd.Stdout, cmd.Stderr = &text, &complaint
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("judge: plan: %w: %s", err, complaint.String())
		}
		d, err := iptsave.Parse("plan", text.String(), iptsave.Options{Family: family})
		if err != nil {
			return nil, err
		}
		out = append(out, d.Tables...)
	}
	return out, nil
}

// hold compares the decision with both traces and with what the kernel did.
func (r *plain) hold(f *finding, d decided, done *threeWays) {
	for name, a := range map[string]trace.Answer{"the planned text": r.planned.Trace(r.flow(f.probe)), "the kernel's rules": f.answer} {
		if why := r.agrees(d, a); why != "" {
			f.differ("trace of %s: %s", name, why)
		}
	}
	if why := r.happened(d, f.fact); why != "" {
		f.differ("the kernel: %s", why)
	}
	done.mu.Lock()
	defer done.mu.Unlock()
	if done.services == nil {
		done.services, done.cases = map[string]bool{}, map[service.Verdict]int{}
	}
	done.services[fmt.Sprint(r.seed, " ", d.target.svc.Name)] = true
	done.cases[d.route.Verdict]++
	if len(f.diffs) > 0 {
		done.wrong++
	}
}
