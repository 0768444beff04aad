package nftables

import (
	"fmt"
	"testing"
)

func numberOf(t testing.TB, ids numbers, name string) uint32 {
	t.Helper()
	id, err := ids.of(name)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestNumbers: a number that is taken goes to nobody else.
func TestNumbers(t *testing.T) {
	for _, name := range []string{"lb-3", "learn-10800", "default/web:http learn-10800"} {
		ids, other := newNumbers(), newNumbers()
		first := numberOf(t, ids, name)
		other.learn("another", first)
		second := numberOf(t, other, name)
		if second == first || other.name(first) != "another" || other.name(second) != name {
			t.Errorf("%s: %#x and then %#x of %v", name, first, second, other)
		}
		if first < leastNumber || !ids.fits(name, first) || !other.fits(name, second) {
			t.Errorf("%s: numbers %#x and %#x", name, first, second)
		}
	}
}

// TestScopeNumbers: a scope has the upper bits of the chain that learns its clients, and
// nothing that was read otherwise counts as it.
func TestScopeNumbers(t *testing.T) {
	ids := newNumbers()
	scope, learner := numberOf(t, ids, "default/web:http learn-60"), numberOf(t, ids, "learn-60")
	if scope&^scopeBits != learner || scope == learner || learner&scopeBits != 0 {
		t.Errorf("scope %#x of chain %#x", scope, learner)
	}
	if same := numberOf(t, ids, "default/web:http learn-10800"); same&^scopeBits == learner {
		t.Errorf("another chain, and scope %#x", same)
	}
	for _, wrong := range []struct {
		name string
		id   uint32
	}{{"default/web:http learn-60", scope + learnerStep}, {"default/web:http learn-60", learner}, {"learn-60", learner + 1}, {"a:b learn-61", scope}} {
		if ids.fits(wrong.name, wrong.id) {
			t.Errorf("%s may be %#x", wrong.name, wrong.id)
		}
	}
}

// TestNumbersRunOut: who asks for more time-outs than there are numbers is told so, and
// takes nothing from others.
func TestNumbersRunOut(t *testing.T) {
	ids := newNumbers()
	for i := range (1<<32 - leastNumber) / learnerStep {
		numberOf(t, ids, fmt.Sprintf("default/web:%d learn-%d", i, i))
	}
	if id, err := ids.of("default/one:more learn-99999"); err == nil {
		t.Errorf("number %#x", id)
	}
	numberOf(t, ids, "default/web:another learn-1")
	numberOf(t, ids, "lb-3")
}
