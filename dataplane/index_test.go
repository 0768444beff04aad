package dataplane

import (
	"fmt"
	"testing"
	"time"
)

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

// TestSharedKeyIsKnown: that many ask for one key, and the oldest of them leave one
// after the other, does not have all that stay be asked every time.
func TestSharedKeyIsKnown(t *testing.T) {
	owner := func(i int) Owner { return Owner{Name: string(rune('A' + i)), Since: time.Unix(int64(i), 0)} }
	shared := Object{Key: Key{Container: "chain", Name: ""}, Body: "counter drop"}
	own := func(i, version int) Object {
		name := owner(i).Name
		return Object{Key: Key{Container: "elements", Rank: Keyed, Name: name}, Body: fmt.Sprint(name, " : ", version)}
	}
	n := 3 * indexFrom
	s := NewSync(&Fake{})
	for i := range n {
		s.Set(owner(i), []Object{shared, own(i, 0)})
	}
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Prepare()
	searches := 0
	for i := range n / 2 {
		s.Set(owner(i), []Object{own(i, 1)})
		x := s.want.containers["chain"].index
		if x.keys[x.hash(shared.Key)].some == nil {
			searches++
		}
		if p := s.Plan(); len(p.Changes) != 1 || p.Changes[0].Container != "elements" {
			t.Fatalf("after %d have left:\n%s", i+1, p)
		}
		if e := x.keys[x.hash(shared.Key)]; e.some == nil || int(e.n) != n-i-1 {
			t.Fatalf("after %d have left: %+v", i+1, e)
		}
		if _, err := s.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if searches > n/4 {
		t.Errorf("%d searches", searches) // a few, of those that happened to be known
	}
}
