package nftables

import (
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/nft"
	"portolan/service"
)

// renderedRules are all rules of a mix of Services with every way to tell pods.
func renderedRules(t testing.TB, f family) []string {
	t.Helper()
	b := New(Options{Family: f.Family, MasqueradeBit: 14})
	nodes := []service.Node{nodeOf(f), {Name: "node1"}, {Name: "node1", Detector: service.PodDetector{Bridge: "cni0"}},
		{Name: "node1", Detector: service.PodDetector{InterfacePrefix: "veth"}}, {Name: "node1", MasqueradeAll: true}}
	var rules []string
	for _, node := range nodes {
		objects := b.Base(node)
		for _, s := range mix(f) {
			list, err := b.Render(node, s)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, list...)
		}
		for _, o := range objects {
			if strings.HasPrefix(o.Key.Container, chainPrefix) && o.Body != "" && !strings.HasPrefix(o.Body, "type ") {
				rules = append(rules, o.Body)
			}
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules)
}

// TestRulesCompile: every rule that is rendered can be written.
func TestRulesCompile(t *testing.T) {
	for _, f := range families {
		b := New(Options{Family: f.Family, MasqueradeBit: 14})
		rules := renderedRules(t, f)
		if len(rules) < 40 {
			t.Errorf("%d rules", len(rules))
		}
		for _, text := range rules {
			r, err := b.words.rule("x", text)
			if err != nil {
				t.Error(err)
				continue
			}
			if got := b.words.ruleText(r); got != text {
				t.Errorf("%q reads back as %q", text, got)
			}
		}
	}
}

// TestRulesThatDoOtherThings: the text that comes with a rule counts only if the
// rule does what it says.
func TestRulesThatDoOtherThings(t *testing.T) {
	w := wordsOf(nft.IPv4, 14)
	r, err := w.rule("x", "ct state new jump check-input")
	if err != nil {
		t.Fatal(err)
	}
	changed := r
	changed.Exprs = append(slices.Clone(r.Exprs[:len(r.Exprs)-1]), nft.Decide{Verdict: nft.Verdict{Code: nft.Jump, Chain: "check-services"}})
	foreign := r
	foreign.Foreign = true
	silent := r
	silent.Userdata = nil
	for name, r := range map[string]nft.Rule{"another target": changed, "something unknown": foreign, "no text": silent} {
		if got := w.ruleText(r); got != "(not ours)" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestRulesRefused: words that are not ours are errors and not rules.
func TestRulesRefused(t *testing.T) {
	w := wordsOf(nft.IPv4, 14)
	for _, text := range []string{
		"ip saddr", "ip saddr 10.0.0.0/33", "ip saddr fd00::/8", "ip6 daddr ::1", "ip daddr . th dport", "ip daddr vmap", "jump",
		"meta mark", "meta mark set", "meta mark & 0x1 == 0x1", "dnat ip to ip daddr map eps", "numgen random mod 0 @x", "iifname cni0",
		`iifname "an-interface-with-a-long-name"`, "update @m { ip saddr timeout 5m : ip daddr . th dport }", "ct state established", "accept all",
	} {
		if exprs, err := w.compile(text); err == nil {
			t.Errorf("%q: %v", text, exprs)
		}
	}
}

// FuzzRule: any text is a rule or an error, and what is a rule can be sent.
func FuzzRule(f *testing.F) {
	for _, family := range families {
		for _, text := range renderedRules(f, family) {
			f.Add(text)
		}
	}
	words := []words{wordsOf(nft.IPv4, 14), wordsOf(nft.IPv6, 31)}
	f.Fuzz(func(t *testing.T, text string) {
		for _, w := range words {
			r, err := w.rule("x", text)
			if err != nil {
				continue
			}
			nft.NewBatch(nft.Table{Family: w.family, Name: "x"}).AddRule(r, 0)
			if got := w.ruleText(r); got != text {
				t.Errorf("%q reads back as %q", text, got)
			}
		}
	})
}

// addElements has fuzzing begin with the elements that Services of every kind ask for.
func addElements(f *testing.F, b *Backend, names []string, family family, six bool) {
	for _, s := range mix(family) {
		objects, err := b.Render(nodeOf(family), s)
		if err != nil {
			f.Fatal(err)
		}
		for _, o := range objects {
			if o.Key.Rank != dataplane.Keyed || o.Key.Container == setsContainer {
				continue
			}
			for a := range atoms(o.Key.Container, o.Key.Name, o.Body) {
				set := a.set
				if s, _ := shapeOf(set); s.isSlots() {
					set = "eps-3"
					if len(s.key) == 3 {
						set = "np-eps-2"
					}
				}
				f.Add(slices.Index(names, set), six, o.Key.Name, a.data)
			}
		}
	}
}

// FuzzElement: any text is elements or an error; what was parsed reads as an
// object again that stands for the same elements.
func FuzzElement(f *testing.F) {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range shapes {
			if !yield(name) {
				return
			}
		}
	})
	names = append(names, "eps-3", "eps-3-1", "np-eps-2")
	for n, family := range families {
		addElements(f, New(Options{Family: family.Family, MasqueradeBit: 14}), names, family, n == 1)
	}
	f.Add(slices.Index(names, "eps-3"), false, "10.0.0.1 . tcp . 80", "7=10.0.0.2 . 80 | 65540=10.0.0.3 . 1")
	f.Add(slices.Index(names, sources), false, "10.0.0.1 . 99 . 80", "10.0.0.3-10.0.0.9")
	f.Fuzz(func(t *testing.T, set int, six bool, name, data string) {
		if set < 0 || set >= len(names) {
			return
		}
		family := service.IPv4
		if six {
			family = service.IPv6
		}
		b := New(Options{Family: family, MasqueradeBit: 14})
		s, _ := shapeOf(names[set])
		list, err := (&reader{b: b}).elementsOf(names[set], s, name, data)
		if err != nil || s.dynamic > 0 {
			return
		}
		var read collection
		for _, e := range list {
			read.add(e)
		}
		for gotName, gotBody := range b.objectsOf(s, &read) {
			again, err := (&reader{b: b}).elementsOf(names[set], s, gotName, dataOf(gotName, gotBody))
			if err != nil {
				t.Fatalf("%q %q reads as %q %q: %v", name, data, gotName, gotBody, err)
			}
			if gone, come := difference(list, again); len(come) > 0 || (len(gone) > 0 && !duplicates(list)) {
				t.Errorf("%q %q reads as %q %q: %v gone, %v come", name, data, gotName, gotBody, gone, come)
			}
		}
	})
}

// TestSlotDifference: it finds what difference does.
func TestSlotDifference(t *testing.T) {
	const name = "10.0.0.1 . tcp . 80"
	b := New(Options{Family: service.IPv4, MasqueradeBit: 14})
	texts := []string{"", "1.1.1.1 . 1", "1.1.1.1 . 1, 1.1.1.2 . 1", "1.1.1.2 . 1, 1.1.1.1 . 1, 1.1.1.3 . 1",
		"1.1.1.1 . 1 | 1.1.1.1 . 1", "1.1.1.1 . 1, 1.1.1.9 . 1 | 1.1.1.9 . 1, 1.1.1.8 . 1", " | 1.1.1.8 . 1"}
	for _, old := range texts {
		for _, now := range texts {
			before, err := (&reader{b: b}).elementsOf("eps-9", slotShape, name, old)
			if err != nil {
				t.Fatal(err)
			}
			after, err := (&reader{b: b}).elementsOf("eps-9", slotShape, name, now)
			if err != nil {
				t.Fatal(err)
			}
			gone, come := difference(before, after)
			quickGone, quickCome, ok := (&reader{b: b}).slotDifference(slotShape, name, old, now)
			same := func(a, b []nft.Element) bool {
				return slices.EqualFunc(a, b, func(a, b nft.Element) bool { return string(a.Key) == string(b.Key) })
			}
			if !ok || !same(gone, quickGone) || !same(come, quickCome) {
				t.Errorf("from %q to %q: %v gone and %v come, want %v and %v", old, now, quickGone, quickCome, gone, come)
			}
		}
	}
	if _, _, ok := (&reader{b: b}).slotDifference(slotShape, name, "3=1.1.1.1 . 1", "1.1.1.1 . 1"); ok {
		t.Error("slots out of order")
	}
}

// FuzzEntry: any body comes apart, and what came apart is put together as it was.
func FuzzEntry(f *testing.F) {
	for _, family := range families {
		b := New(Options{Family: family.Family, MasqueradeBit: 14})
		for _, s := range mix(family) {
			objects, err := b.Render(nodeOf(family), s)
			if err != nil {
				f.Fatal(err)
			}
			for _, o := range objects {
				if o.Key.Container == frontends {
					f.Add(o.Key.Name, o.Body)
				}
			}
		}
	}
	f.Add("tcp . 80", "tcp . 80 : (accept); else (return); eps-1 3=a; eps-2 b; from nobody; scope x")
	f.Add("tcp . 80", "tcp . 80 : unlimited 10.0.0.0/8")
	f.Fuzz(func(t *testing.T, name, body string) {
		together := func(body string) string {
			var e entry
			for a := range atoms(frontends, name, body) {
				if s, ok := shapeOf(a.set); ok {
					e.set(a.set, s, a.data)
				}
			}
			_, out := e.object(name)
			return out
		}
		once := together(body)
		if twice := together(once); twice != once {
			t.Errorf("%q, put together %q, then %q", body, once, twice)
		}
	})
}

// TestEntries: what is rendered about frontends comes apart and together again.
func TestEntries(t *testing.T) {
	for _, f := range families {
		b := New(Options{Family: f.Family, MasqueradeBit: 14})
		for _, s := range mix(f) {
			objects, err := b.Render(nodeOf(f), s)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				if o.Key.Container != frontends {
					continue
				}
				var e entry
				for a := range atoms(frontends, o.Key.Name, o.Body) {
					s, ok := shapeOf(a.set)
					if !ok {
						t.Errorf("%q: no set is called %q", o.Body, a.set)
					}
					e.set(a.set, s, a.data)
				}
				if _, body := e.object(o.Key.Name); body != o.Body {
					t.Errorf("%q comes back as %q", o.Body, body)
				}
			}
		}
	}
}

// duplicates tells whether a key comes twice, which the kernel would refuse.
func duplicates(list []nft.Element) bool {
	seen := map[string]bool{}
	for _, e := range list {
		key := string(e.Key) + string(e.KeyEnd)
		if seen[key] {
			return true
		}
		seen[key] = true
	}
	return false
}
