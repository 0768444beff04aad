package verify_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"portolan/agent"
	"portolan/backend/iptables"
	"portolan/backend/nftables"
	"portolan/dataplane"
	"portolan/netfilter/detect"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
	"portolan/trace"
	"portolan/verify"
)

// Every scenario in testdata is a node that is as the proxy plans it for the
// Services of base.txtar, but for what the part "edit" changes and for the texts
// that are added. "want" lists all findings that come of it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txtar")
	if err != nil || len(files) < 1 {
		t.Fatal(err, files)
	}
	base := readParts(t, "testdata/base.txtar")
	seen := map[verify.Code]bool{}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			s := newSetup(t, base, readParts(t, file))
			r := verify.Verify(s.input(t))
			var got []string
			for _, f := range r.Findings {
				seen[f.Code] = true
				got = append(got, fmt.Sprintf("%s %s %s", f.Severity, f.Code, f.Object))
				if f.Actual == "" || f.Expected == "" || f.Fix == "" || f.Owner.Name == "" && f.Code != verify.AddressConflict && f.Code != verify.RouteMissing && f.Code != verify.ProxyMissing {
					t.Errorf("not all is said: %+v", f)
				}
			}
			slices.Sort(got)
			want := strings.TrimSpace(s.parts["want"])
			if strings.Join(got, "\n") != want {
				t.Errorf("findings\n%s\nwant\n%s", strings.Join(got, "\n"), want)
				for _, f := range r.Findings {
					t.Logf("%s %s\n  is %s\n  should %s\n  owner %+v\n  fix %s\n  affects %v", f.Code, f.Object, f.Actual, f.Expected, f.Owner, f.Fix, f.Affected)
				}
			}
			for say := range strings.Lines(s.parts["says"]) {
				say = strings.TrimSpace(say)
				if !slices.ContainsFunc(r.Findings, func(f verify.Finding) bool {
					return strings.Contains(fmt.Sprintf("%s\n%s\n%s %s\n%s", f.Actual, f.Expected, f.Owner.Name, f.Owner.Why, f.Fix), say)
				}) {
					t.Errorf("no finding says %q", say)
				}
			}
		})
	}
	for _, c := range verify.Codes() {
		if !seen[c] {
			t.Errorf("no scenario finds %s", c)
		}
	}
}

func readParts(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range txtar.Parse(text).Files {
		out[f.Name] = string(f.Data)
	}
	return out
}

// setup is a node on paper.
type setup struct {
	base, parts    map[string]string
	services, host string
	mode, variant  string
	layout         iptables.Layout
	name, cidr     string
	edits          []edit
}

// edit changes one of the texts: "rules", "host", "services", or "later" the
// services when the rules were written.
type edit struct{ what, verb, a, b string }

func newSetup(t *testing.T, base, parts map[string]string) *setup {
	t.Helper()
	s := &setup{parts: parts, services: base["services.yaml"], host: base["host.yaml"], mode: "iptables", name: "node-1", cidr: "10.244.0.0/16"}
	for _, line := range strings.Split(strings.TrimSpace(parts["args"]), "\n") {
		switch k, v, _ := strings.Cut(line, " "); k {
		case "mode":
			s.mode = v
		case "name":
			s.name = v
		case "cidr":
			s.cidr = v
		case "variant":
			s.variant = v
		case "layout":
			s.layout = iptables.Compact
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(parts["edit"]), "\n") {
		if line == "" {
			continue
		}
		what, rest, _ := strings.Cut(line, " ")
		verb, rest, _ := strings.Cut(rest, " ")
		a, b, _ := strings.Cut(rest, " => ")
		s.edits = append(s.edits, edit{what, verb, a, b})
	}
	s.services += parts["services.yaml"]
	if s.mode == "ipvs" {
		s.host = strings.Replace(s.host, "routes:\n", base["ipvs.host"]+"routes:\n", 1) + "  net.ipv4.vs.conntrack: 1\n"
		s.host = strings.Replace(s.host, "route_localnet: 1", "route_localnet: 0", 1)
	}
	s.base = base
	s.host = s.edited(t, "host", s.host)
	s.services = s.edited(t, "services", s.services)
	return s
}

// edited applies the edits of one text; one that changes nothing is an error.
func (s *setup) edited(t *testing.T, what, text string) string {
	t.Helper()
	for _, e := range s.edits {
		if e.what != what {
			continue
		}
		before := text
		switch e.verb {
		case "drop":
			re := regexp.MustCompile(e.a)
			lines := slices.DeleteFunc(strings.SplitAfter(text, "\n"), func(l string) bool { return re.MatchString(strings.TrimSuffix(l, "\n")) })
			text = strings.Join(lines, "")
		case "change":
			text = regexp.MustCompile(e.a).ReplaceAllString(text, strings.ReplaceAll(e.b, `\n`, "\n"))
		case "add", "insert": // rules: TABLE RULE
			table, rule, _ := strings.Cut(e.a, " ")
			text = addRule(text, table, rule, e.verb == "insert")
		default:
			t.Fatalf("edit %q", e.verb)
		}
		if text == before {
			t.Fatalf("%s: %s %q changes nothing", what, e.verb, e.a)
		}
	}
	return text
}

// addRule puts a rule at the beginning or the end of a table of a saved text.
func addRule(text, table, rule string, first bool) string {
	head, rest, ok := strings.Cut(text, "*"+table+"\n")
	if !ok {
		return text + "*" + table + "\n" + rule + "\nCOMMIT\n"
	}
	body, tail, _ := strings.Cut(rest, "COMMIT\n")
	if first {
		rule = strings.Replace(rule, "-A ", "-I ", 1)
	}
	return head + "*" + table + "\n" + body + rule + "\nCOMMIT\n" + tail
}

// snapshot reads the Services.
func (s *setup) snapshot(t *testing.T) (*service.Snapshot, []kube.Peer) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "services.yaml"), []byte(s.services), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := kube.NewCluster(kube.Settings{NodeName: s.name, ClusterCIDRs: prefixes(s.cidr), NodePorts: service.NodePortAddresses{Localhost: true}})
	snapshot, problems := manifests.New([]string{dir}, cluster).Load(t.Context())
	for _, p := range problems {
		if p.Warning {
			continue // that the own Node is unknown is a finding of its own
		}
		t.Error(p)
	}
	return snapshot, cluster.Peers()
}

func (s *setup) input(t *testing.T) verify.Input {
	t.Helper()
	before, _ := s.snapshot(t)
	rules := s.edited(t, "rules", s.planned(t, before))
	s.services = s.edited(t, "later", s.services) // what the proxy has missed
	snapshot, peers := s.snapshot(t)
	texts := []detect.Text{{Name: "host", Text: s.host}}
	if s.mode != "none" {
		if s.variant != "" {
			rules = "# Generated by iptables-save v1.8.9 (" + map[string]string{"nft": "nf_tables"}[s.variant] + ")\n" + rules
		}
		texts = append(texts, detect.Text{Name: "rules", Text: rules})
	}
	if s.mode == "ipvs" {
		texts = append(texts, detect.Text{Name: "sets", Text: s.edited(t, "sets", s.base["ipvs.sets"])}, detect.Text{Name: "servers", Text: s.edited(t, "servers", s.base["ipvs.servers"])})
	}
	for name, text := range s.parts {
		switch name {
		case "args", "edit", "drift", "want", "says", "services.yaml", "host.yaml", "cni.save":
		default:
			texts = append(texts, detect.Text{Name: name, Text: text})
		}
	}
	h, err := detect.Host(detect.Options{}, texts...)
	if err != nil {
		t.Fatal(err)
	}
	in := verify.Input{Tracer: trace.New(h, trace.Options{Reply: true}), Services: snapshot}
	in.Drift = s.drift(t)
	for _, p := range peers {
		in.Nodes = append(in.Nodes, verify.Node{Name: p.Name, IPs: p.IPs, Pods: p.PodCIDRs})
	}
	return in
}

// planned is what the proxy writes for the Services in an empty kernel, with what
// the pod network adds to it.
func (s *setup) planned(t *testing.T, snapshot *service.Snapshot) string {
	t.Helper()
	switch s.mode {
	case "none":
		return ""
	case "ipvs": // of kube-proxy
		return s.base["ipvs.save"]
	case "nftables":
		b := nftables.New(nftables.Options{Family: service.IPv4, MasqueradeBit: 14})
		return b.PlanText(planOf(t, b, snapshot))
	}
	b := iptables.New(iptables.Options{Family: service.IPv4, Layout: s.layout, MasqueradeBit: 14, RandomFully: true})
	text := iptables.PlanText(planOf(t, b, snapshot))
	cni := s.base["cni.save"]
	for _, table := range []string{"filter", "nat"} {
		_, body, _ := strings.Cut(cni, "*"+table+"\n")
		body, _, _ = strings.Cut(body, "COMMIT\n")
		for _, line := range strings.Split(strings.TrimSpace(body), "\n") {
			text = addRule(text, table, line, false)
		}
	}
	return text
}

// drift is a plan of lines "missing CHAIN LINE" and "foreign CHAIN LINE".
func (s *setup) drift(t *testing.T) (out []dataplane.Plan) {
	t.Helper()
	for line := range strings.Lines(s.parts["drift"]) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		chain, body, _ := strings.Cut(rest, " ")
		c := dataplane.Change{Container: chain, Exists: true}
		o := []dataplane.Object{{Key: dataplane.Key{Container: chain}, Body: body}}
		if kind == "missing" {
			c.Created = o
		} else {
			c.Deleted = o
		}
		out = append(out, dataplane.Plan{Changes: []dataplane.Change{c}})
	}
	return out
}

func planOf(t testing.TB, b agent.Backend, snapshot *service.Snapshot) dataplane.Plan {
	t.Helper()
	sync := dataplane.NewSync(&dataplane.Fake{})
	sync.Set(dataplane.Owner{}, b.Base(snapshot.Node))
	for _, svc := range slices.SortedFunc(snapshot.All(), func(a, b *service.Service) int { return a.Name.Compare(b.Name) }) {
		objects, err := b.Render(snapshot.Node, svc)
		if err != nil {
			t.Fatal(err)
		}
		sync.Set(dataplane.Owner{Name: svc.Name.String(), Since: svc.Created}, objects)
	}
	return sync.Plan()
}
