package nft

import (
	"slices"
	"testing"

	"portolan/internal/netnstest"
)

// TestOneChain: what is asked about one chain is about that one.
func TestOneChain(t *testing.T) {
	netnstest.Enter(t)
	c := dial(t)
	jump := func(chain, to string) Rule {
		return Rule{Chain: chain, Exprs: []Expr{Counter{}, Decide{Verdict{Code: Jump, Chain: to}}}}
	}
	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	err = commit(t, c, func(b *Batch) {
		b.AddTable(0)
		for _, name := range []string{"a", "b", "empty"} {
			b.AddChain(Chain{Name: name}, 0)
		}
		b.AddRule(jump("a", "b"), 0)
		b.AddRule(Rule{Chain: "a", Exprs: []Expr{Counter{}}}, 0)
		b.AddRule(jump("a", "empty"), 0)
		b.AddRule(jump("b", "empty"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	if after, err := c.Generation(); err != nil || after != before+1 {
		t.Errorf("generation %d after %d: %v", after, before, err)
	}
	for name, want := range map[string][]string{"a": {"b", "", "empty"}, "b": {"empty"}, "empty": nil, "none": nil} {
		there, err := c.HasChain(testTable, name)
		if err != nil || there != (name != "none") {
			t.Errorf("chain %s: there %v, %v", name, there, err)
		}
		if got, err := c.Targets(testTable, name); err != nil || !slices.Equal(got, want) {
			t.Errorf("chain %s: targets %q, %v", name, got, err)
		}
	}
	elsewhere := Table{IPv6, testTable.Name}
	if there, err := c.HasChain(elsewhere, "a"); err != nil || there {
		t.Errorf("chain of a table that is not there: %v %v", there, err)
	}
	if got, err := c.Targets(elsewhere, "a"); err != nil || got != nil {
		t.Errorf("rules of a table that is not there: %q %v", got, err)
	}
}
