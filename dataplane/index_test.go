package dataplane

import "testing"

// TestIndexed: with an index in every container all is as without.
func TestIndexed(t *testing.T) {
	from, share := indexFrom, indexShare
	indexFrom, indexShare = 1, 1
	defer func() { indexFrom, indexShare = from, share }()
	for name, test := range map[string]func(*testing.T){
		"refused owners":     TestSyncHoldsBackRefusedOwners,
		"last good version":  TestRejectedChangeKeepsTheLastGoodVersion,
		"search after start": TestSearchAfterAStartKeepsOthersUp,
		"converges":          TestSyncConverges,
		"forgets the way":    TestWantForgetsTheWay,
		"loser takes over":   TestLoserTakesOverInTheSamePlan,
		"two replacements":   TestSwapOfOneAddressIsTwoReplacements,
		"first write":        TestFirstWriteObserves,
		"kept containers":    TestContainerThatCannotGoIsKept,
	} {
		t.Run(name, test)
	}
}

// TestPrepare: what is made ahead changes no plan.
func TestPrepare(t *testing.T) {
	fake := &Fake{}
	plain, prepared := NewSync(fake), NewSync(&Fake{})
	for _, s := range []*Sync{plain, prepared} {
		for i := range 3 * indexFrom {
			name := string(rune('a' + i))
			s.Set(Owner{Name: name}, []Object{{Key: Key{Container: "keyed", Rank: Keyed, Name: name}, Body: name + " : 1"}})
		}
		if _, err := s.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	prepared.Prepare()
	if c := prepared.want.containers["keyed"]; c.index == nil {
		t.Error("there is no index")
	}
	for _, s := range []*Sync{plain, prepared} {
		s.Set(Owner{Name: "b"}, []Object{{Key: Key{Container: "keyed", Rank: Keyed, Name: "b"}, Body: "b : 2"}})
	}
	if a, b := plain.Plan().String(), prepared.Plan().String(); a != b || a == "" {
		t.Errorf("without:\n%s\nwith:\n%s", a, b)
	}
}
