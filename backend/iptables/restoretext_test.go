package iptables

import (
	"bufio"
	"errors"
	"flag"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

var update = flag.Bool("update", false, "rewrite the expected texts in testdata")

// The text of a first load, of every form of rule, word by word.
func TestTextOfAFirstLoad(t *testing.T) {
	for _, f := range []service.Family{service.IPv4, service.IPv6} {
		for file, l := range map[string]Layout{"first-load": Standard, "compact": Compact} {
			checkFirstLoad(t, f, l, "testdata/"+file+"."+strings.ToLower(f.String())+".txt")
		}
	}
}

func checkFirstLoad(t *testing.T, f service.Family, l Layout, file string) {
	t.Helper()
	b := New(Options{Family: f, Layout: l, MasqueradeBit: 14, RandomFully: true, Nfacct: Counters{true, true}})
	node, services := everyShape(f)
	objects := b.Base(node)
	for _, svc := range services {
		more, err := b.Render(node, svc)
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, more...)
	}
	got := Text(objects)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; see git diff after -update", file)
	}
	for _, o := range objects {
		if body, ok := iptables.Canonical(o.Body); o.Body != "" && (!ok || body != o.Body) {
			t.Errorf("%s is not canonical: %s", o.Body, body)
		}
	}
}

// The last rule of nat KUBE-SERVICES, by where NodePorts answer.
func TestLastRuleOfServices(t *testing.T) {
	local := []netip.Addr{addr("127.0.0.1"), addr("192.0.2.10"), addr("192.0.2.9"), addr("::1"), addr("2001:db8::10")}
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, p := range texts {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	for _, c := range []struct {
		f    service.Family
		a    service.NodePortAddresses
		want []string
	}{
		{service.IPv4, service.NodePortAddresses{Localhost: true}, []string{" -m addrtype --dst-type LOCAL"}},
		{service.IPv4, service.NodePortAddresses{}, []string{" -m addrtype --dst-type LOCAL ! -d 127.0.0.0/8"}},
		{service.IPv6, service.NodePortAddresses{Localhost: true}, []string{" -m addrtype --dst-type LOCAL ! -d ::1/128"}},
		{service.IPv4, service.NodePortAddresses{Localhost: true, Local: local, Prefixes: prefixes("127.0.0.0/8", "192.0.2.0/24")},
			[]string{" -d 127.0.0.1", " -d 192.0.2.9", " -d 192.0.2.10"}},
		{service.IPv4, service.NodePortAddresses{Local: local, Prefixes: prefixes("127.0.0.0/8")}, nil},
		{service.IPv6, service.NodePortAddresses{Local: local, Prefixes: prefixes("::/1", "2001:db8::/32")}, []string{" -d 2001:db8::10"}},
	} {
		var got []string
		for _, o := range New(Options{Family: c.f}).Base(service.Node{NodePorts: c.a}) {
			if o.Key.Container == natServices && o.Body != "" {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(o.Body, nodePortsComment), " -j KUBE-NODEPORTS"))
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v %+v: %q, want %q", c.f, c.a, got, c.want)
		}
	}
}

// scene is a backend with a Service in a Sync on a Fake.
type scene struct {
	t    *testing.T
	b    *Backend
	s    *dataplane.Sync
	node service.Node
	svc  service.Service
}

func newScene(t *testing.T) *scene {
	sc := &scene{t: t, b: New(Options{Family: service.IPv4, MasqueradeBit: 14})}
	sc.s = dataplane.NewSync(&dataplane.Fake{})
	sc.node = service.Node{Name: "n1", IPs: []netip.Addr{addr("192.0.2.10")}, NodePorts: service.NodePortAddresses{Localhost: true},
		Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}}
	sc.svc = *clusterService("default", "web", "10.96.0.20", tcpPort("http", 80, 30080, "10.244.1.1:8080", "10.244.2.1:8080"))
	sc.svc.LoadBalancerIPs = []netip.Addr{addr("198.51.100.7")}
	fill(t, sc.s, sc.b, sc.node, []*service.Service{&sc.svc})
	sc.apply()
	return sc
}

func (sc *scene) apply() {
	sc.t.Helper()
	if _, err := sc.s.Apply(sc.t.Context()); err != nil {
		sc.t.Fatal(err)
	}
}

// text is what a change of the Service would write.
func (sc *scene) text(change func(*service.Service)) string {
	sc.t.Helper()
	changed := sc.svc
	changed.Ports = slices.Clone(changed.Ports)
	change(&changed)
	sc.svc = changed
	objects, err := sc.b.Render(sc.node, &changed)
	if err != nil {
		sc.t.Fatal(err)
	}
	sc.s.Set(dataplane.Owner{Name: changed.Name.String(), Since: changed.Created}, objects)
	text := PlanText(sc.s.Plan())
	sc.apply()
	return text
}

// sections are the tables of an input, with the chains declared in each.
func sections(text string) (out []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			out = append(out, line[1:])
		case strings.HasPrefix(line, ":"):
			chain, _, _ := strings.Cut(line[1:], " ")
			if i := strings.LastIndexByte(chain, '-'); len(chain)-i > 16 {
				chain = chain[:i]
			}
			if last := len(out) - 1; !strings.HasSuffix(out[last], " "+chain) {
				out[last] += " " + chain
			}
		}
	}
	return out
}

// Each table takes effect at its own COMMIT. In between every connection meets what
// it met before or what it will meet.
func TestInvariant8ProtectionComesFirstAndGoesLast(t *testing.T) {
	sc := newScene(t)
	endpoints := sc.svc.Ports[0].Endpoints
	for _, step := range []struct {
		what   string
		change func(*service.Service)
		want   []string
	}{
		{"one endpoint less", func(s *service.Service) { s.Ports[0].Endpoints = endpoints[:1] },
			[]string{"nat KUBE-SVC KUBE-SEP"}},
		{"to none", func(s *service.Service) { s.Ports[0].Endpoints = nil },
			[]string{"filter KUBE-SERVICES KUBE-EXTERNAL-SERVICES", "nat KUBE-SVC KUBE-SERVICES KUBE-SEP KUBE-NODEPORTS KUBE-EXT"}},
		{"from none", func(s *service.Service) { s.Ports[0].Endpoints = endpoints },
			[]string{"nat KUBE-SVC KUBE-SERVICES KUBE-SEP KUBE-NODEPORTS KUBE-EXT", "filter KUBE-SERVICES KUBE-EXTERNAL-SERVICES"}},
		{"source ranges", func(s *service.Service) { s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} },
			[]string{"filter KUBE-PROXY-FIREWALL", "nat KUBE-SERVICES KUBE-FW"}},
		{"no source ranges", func(s *service.Service) { s.SourceRanges = nil },
			[]string{"nat KUBE-SERVICES KUBE-FW", "filter KUBE-PROXY-FIREWALL"}},
		{"other cluster IP", func(s *service.Service) { s.ClusterIPs = []netip.Addr{addr("10.96.0.21")} },
			[]string{"nat KUBE-SVC KUBE-SERVICES"}},
		{"ranges again", func(s *service.Service) {
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		}, []string{"filter KUBE-PROXY-FIREWALL", "nat KUBE-SERVICES KUBE-FW"}},
		{"address moves while firewalled", func(s *service.Service) { s.LoadBalancerIPs = []netip.Addr{addr("198.51.100.8")} },
			[]string{"filter KUBE-PROXY-FIREWALL", "nat KUBE-SERVICES", "filter KUBE-PROXY-FIREWALL"}},
	} {
		text := sc.text(step.change)
		if got := sections(text); !slices.Equal(got, step.want) {
			t.Errorf("%s: sections %q, want %q\n%s", step.what, got, step.want, text)
		}
	}
}

// Where the translation of an address begins, what filter has for it comes after
// nat, and where it ends, before: who is in the source ranges is refused, then
// answered, then refused again, and dropped never.
func TestFilterFollowsTheTranslation(t *testing.T) {
	const reject, local = "has no endpoints", "has no local endpoints"
	const firewall = "-A KUBE-PROXY-FIREWALL"
	sc := newScene(t)
	endpoints := sc.svc.Ports[0].Endpoints
	sc.text(func(s *service.Service) {
		s.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
		s.ExternalPolicy = service.Local
	})
	for _, step := range []struct {
		what           string
		change         func(*service.Service)
		has, hasNot    []string // in the first write of filter
		later, atNever []string // in the second
	}{
		{"1 to 0", func(s *service.Service) { s.Ports[0].Endpoints = nil }, []string{reject}, []string{firewall, local}, nil, nil},
		{"0 to 1", func(s *service.Service) { s.Ports[0].Endpoints = endpoints[:1] }, nil, nil, []string{firewall, local}, []string{reject}},
		{"another address", func(s *service.Service) { s.LoadBalancerIPs = []netip.Addr{addr("198.51.100.8")} },
			nil, []string{"198.51.100.7", "198.51.100.8"}, []string{"198.51.100.8"}, []string{"198.51.100.7"}},
	} {
		text := sc.text(step.change)
		before, rest, _ := strings.Cut(text, "*nat\n")
		_, after, _ := strings.Cut(rest, "*filter\n")
		for _, part := range []struct {
			text        string
			has, hasNot []string
		}{{before, step.has, step.hasNot}, {after, step.later, step.atNever}} {
			for _, want := range part.has {
				if !strings.Contains(part.text, want) {
					t.Errorf("%s: no %q in\n%s\nof\n%s", step.what, want, part.text, text)
				}
			}
			for _, no := range part.hasNot {
				if strings.Contains(part.text, no) {
					t.Errorf("%s: %q in\n%s\nof\n%s", step.what, no, part.text, text)
				}
			}
		}
	}
}

// A second endpoint touches the balancing chain and one new endpoint chain, and
// nothing that grows with the cluster.
func TestSmallChangeSmallInput(t *testing.T) {
	sc := newScene(t)
	text := sc.text(func(s *service.Service) {
		s.Ports[0].Endpoints = append(slices.Clone(s.Ports[0].Endpoints), ready("10.244.3.1:8080")...)
	})
	if got := strings.Count(text, "\n:"); got != 2 || strings.Contains(text, "KUBE-SERVICES") || strings.Contains(text, "*filter") {
		t.Errorf("input\n%s", text)
	}
}

func TestKeyOfLine(t *testing.T) {
	sc := newScene(t)
	objects, err := sc.b.Render(sc.node, &sc.svc)
	if err != nil {
		t.Fatal(err)
	}
	var w dataplane.Want
	w.Set(dataplane.Owner{Name: "default/web"}, objects)
	plan := w.Plan(func(string) bool { return false })
	for i, line := range strings.Split(strings.TrimSuffix(PlanText(plan), "\n"), "\n") {
		k := keyOf(plan, 0, i+1)
		rule, isRule := strings.CutPrefix(line, "-A ")
		if isRule != slices.ContainsFunc(objects, func(o dataplane.Object) bool {
			return o.Key == k && o.Body != "" && chainOf(k.Container)+" "+o.Body == rule
		}) {
			t.Errorf("line %d, %s: key %v", i+1, line, k)
		}
	}
	if k := keyOf(plan, 0, 9999); k != (dataplane.Key{}) {
		t.Errorf("key %v of a line that is not there", k)
	}
}

// In batches the new chains come first, each leading only to chains before it;
// the rest is what it is without.
func TestBatchesLeadOnlyToWhatIsThere(t *testing.T) {
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14})
	node, services := everyShape(service.IPv4)
	var w dataplane.Want
	w.Set(dataplane.Owner{}, b.Base(node))
	for _, svc := range services {
		objects, err := b.Render(node, svc)
		if err != nil {
			t.Fatal(err)
		}
		w.Set(dataplane.Owner{Name: svc.Name.String()}, objects)
	}
	plan := w.Plan(func(string) bool { return false })
	var text strings.Builder
	in := restoreText{out: bufio.NewWriter(&text), batch: 5}
	in.write(plan)
	in.out.Flush()
	there := map[string]bool{}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for i, line := range lines {
		if chain, ok := strings.CutPrefix(line, ":"); ok {
			chain, _, _ = strings.Cut(chain, " ")
			there[chain] = true
		}
		if target := iptables.TargetOf(" " + line); strings.HasPrefix(target, "KUBE-S") && !there[target] {
			t.Errorf("line %d leads to a chain that is not there: %s", i+1, line)
		}
		if k := keyOf(plan, in.batch, i+1); strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A "+chainOf(k.Container)+" ") {
			t.Errorf("line %d is taken for one of %s: %s", i+1, k.Container, line)
		}
	}
	if n := slices.Index(lines, "*filter"); n < 0 || strings.Count(strings.Join(lines[:n], "\n"), "*nat") < 5 ||
		strings.Contains(strings.Join(lines[:n], "\n"), "-A KUBE-SERVICES") {
		t.Errorf("input\n%s", text.String())
	}
	sorted := func(text string) []string {
		l := slices.DeleteFunc(strings.Split(text, "\n"), func(l string) bool { return l == "*nat" || l == "COMMIT" })
		slices.Sort(l)
		return l
	}
	if !slices.Equal(sorted(text.String()), sorted(PlanText(plan))) {
		t.Error("batches write something else than the plan")
	}
}

// Two Services, one external address and port: the older has it in every chain,
// also when it has no endpoints and the younger has.
func TestConflictIsOfTheWholeAddress(t *testing.T) {
	sc := newScene(t)
	other := *clusterService("default", "other", "10.96.0.30", tcpPort("", 80, 0))
	other.ExternalIPs = []netip.Addr{addr("198.51.100.7")}
	sc.svc.Created = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	other.Created = sc.svc.Created.Add(-time.Hour)
	fake := &dataplane.Fake{}
	s := dataplane.NewSync(fake)
	fill(t, s, sc.b, sc.node, []*service.Service{&sc.svc, &other})
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := fake.Content()
	if slices.ContainsFunc(c[natServices], func(l string) bool { return strings.Contains(l, "198.51.100.7") }) ||
		!slices.ContainsFunc(c[filterExternal], func(l string) bool { return strings.Contains(l, `"default/other has no endpoints"`) }) {
		t.Errorf("nat %q\nfilter %q", c[natServices], c[filterExternal])
	}
	lost := s.Conflicts()
	if len(lost) == 0 || lost[0].Loser.Name != "default/web" || lost[0].Winner.Name != "default/other" {
		t.Errorf("conflicts %v", lost)
	}
	s.Remove("default/other")
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := fake.Content(); len(c[filterExternal]) != 0 || len(s.Conflicts()) != 0 ||
		!slices.ContainsFunc(c[natServices], func(l string) bool { return strings.Contains(l, "198.51.100.7") }) {
		t.Errorf("after the winner went: nat %q\nfilter %q", c[natServices], c[filterExternal])
	}
}

func TestUnsafeNamesAreRefused(t *testing.T) {
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14})
	for _, bad := range []string{`a" -j ACCEPT "`, "a b", "a\nCOMMIT", "ä", "a\\", "a'b", strings.Repeat("x", 64), "a\x00"} {
		for _, svc := range []*service.Service{
			clusterService(bad, "web", "10.96.0.1", tcpPort("", 80, 0)),
			clusterService("default", bad, "10.96.0.1", tcpPort("", 80, 0)),
			clusterService("default", "web", "10.96.0.1", tcpPort(bad, 80, 0)),
			clusterService("default", "web", "10.96.0.1", service.Port{Protocol: service.Protocol(bad), Port: 80}),
		} {
			if objects, err := b.Render(service.Node{}, svc); err == nil || objects != nil {
				t.Errorf("%q was rendered", bad)
			}
		}
	}
}

func TestApplyTellsRefusalsFromCircumstances(t *testing.T) {
	tool := iptables.NewTool(iptables.IPv4, iptables.Legacy)
	tool.RestoreProgram = "/nonexistent/iptables-restore"
	b := New(Options{Family: service.IPv4, Tool: tool})
	err := b.Apply(t.Context(), dataplane.Plan{Changes: []dataplane.Change{{Container: natServices}}})
	var refusal *dataplane.Refusal
	if err == nil || errors.As(err, &refusal) {
		t.Errorf("error %v", err)
	}
}
