package trace_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"portolan/netfilter"
	"portolan/netfilter/detect"
	"portolan/trace"
)

var update = flag.Bool("update", false, "write the lists of what is not understood anew; verdicts never are")

// The rules of other makers, each in testdata/makers: what the maker writes, in the
// forms in which it is met, the host it is on, and "FLOW => what becomes of it". Every
// form of the rules must give every verdict, without anything on the way that is not
// understood.
func TestMakers(t *testing.T) {
	for _, file := range makerFiles(t) {
		m := readMaker(t, file)
		if len(m.verdicts) < 3 {
			t.Errorf("%s: only %d verdicts", file, len(m.verdicts))
		}
		for form, h := range m.hosts(t) {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar")+"/"+form, func(t *testing.T) {
				for _, v := range m.verdicts {
					got, sure := verdictOf(t, h, v[0])
					if got != v[1] || !sure {
						t.Errorf("%s =>\n got %s, certain %t\nwant %s", v[0], got, sure, v[1])
					}
				}
			})
		}
	}
}

// All that is not understood, of rules of other makers and of all other rulesets here,
// is in a list.
func TestNotUnderstood(t *testing.T) {
	var out strings.Builder
	for _, file := range makerFiles(t) {
		hosts := readMaker(t, file).hosts(t)
		for _, form := range slices.Sorted(maps.Keys(hosts)) {
			fmt.Fprintf(&out, "%s, %s:%s\n", filepath.Base(file), form, unknowns(hosts[form]))
		}
	}
	for _, pattern := range []string{"nft/*.nft", "nft/*.json", "dumps/*"} {
		files, err := filepath.Glob(shared + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			texts, err := detect.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			o := detect.Options{}
			if strings.HasSuffix(file, ".S.txt") {
				o = detectOptions("nat")
			}
			h, err := detect.Host(o, texts...)
			if err != nil {
				t.Fatal(err)
			}
			if len(h.Tables) > 0 {
				fmt.Fprintf(&out, "%s:%s\n", strings.TrimPrefix(file, shared), unknowns(h))
			}
		}
	}
	const golden = "testdata/makers/unknown.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != out.String() {
		t.Errorf("%v; what is not understood:\n%s\n%s says:\n%s", err, out.String(), golden, want)
	}
}

func makerFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/makers/*.txtar")
	if err != nil || len(files) < 25 {
		t.Fatal(len(files), "makers", err)
	}
	return files
}

// maker is one file of testdata/makers.
type maker struct {
	texts    []detect.Text
	verdicts [][2]string
}

func readMaker(t *testing.T, file string) maker {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m maker
	for _, f := range txtar.Parse(b).Files {
		if f.Name != "verdicts" {
			m.texts = append(m.texts, detect.Text{Name: f.Name, Text: string(f.Data)})
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			flow, verdict, _ := strings.Cut(strings.TrimSpace(line), " => ")
			m.verdicts = append(m.verdicts, [2]string{flow, verdict})
		}
	}
	return m
}

// hosts has one for each form of the rules: where there are nft rules in JSON, the
// same rules are there as text, and each stands for the other.
func (m maker) hosts(t *testing.T) map[string]*netfilter.Host {
	t.Helper()
	out := map[string]*netfilter.Host{}
	json := slices.ContainsFunc(m.texts, func(x detect.Text) bool { return x.Name == "rules.json" })
	for form, without := range map[string]string{"text": "rules.json", "json": "rules.nft"} {
		if form == "json" && !json {
			continue
		}
		var texts []detect.Text
		for _, x := range m.texts {
			if x.Name != without {
				texts = append(texts, x)
			}
		}
		h, err := detect.Host(detect.Options{}, texts...)
		if err != nil {
			t.Fatal(err)
		}
		out[form] = h
	}
	return out
}

// unknowns lists what is not understood, a line each.
func unknowns(h *netfilter.Host) string {
	var out strings.Builder
	for at, r := range h.Rules() {
		place := fmt.Sprintf("%s %s rule %d", at.Table.Name, at.Chain.Name, at.Number)
		for _, u := range r.Unknowns() {
			fmt.Fprintf(&out, "\n\t%s: %s (%s)", place, u.Text, u.Why)
		}
		for _, s := range r.Statements {
			if compare, ok := s.(netfilter.Compare); ok {
				if o, ok := compare.Left.(netfilter.Opaque); ok {
					fmt.Fprintf(&out, "\n\t%s: %s", place, o.Text)
				}
			}
		}
	}
	if out.Len() == 0 {
		return " nothing"
	}
	return out.String()
}

// verdictOf writes all that can happen to a packet, with the rule that stops it, and
// tells whether every outcome with a share is certain.
func verdictOf(t *testing.T, h *netfilter.Host, f string) (text string, sure bool) {
	t.Helper()
	text, _ = outcomes(t, h, "", f)
	a := trace.New(h, trace.Options{}).Trace(flow(t, f))
	if o := a.Outcomes[0]; o.Verdict.Lost() && o.Cause == trace.ByRules && len(o.Steps) > 0 {
		s := o.Steps[len(o.Steps)-1]
		text += fmt.Sprintf(" by %s %s:%d", s.Table, s.Chain, s.Rule)
	}
	return text, a.Certain()
}
