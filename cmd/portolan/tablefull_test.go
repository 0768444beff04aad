package main

import "testing"

// TestFullness: a table that fills up is told of once, and again after it was emptier.
func TestFullness(t *testing.T) {
	var f fullness
	for i, step := range []struct {
		entries, most int
		told          bool
	}{
		{0, 100, false}, {94, 100, false}, {95, 100, true}, {100, 100, false}, {90, 100, false},
		{96, 100, false}, {84, 100, false}, {95, 100, true}, {5, 0, false},
	} {
		if got := f.note(step.entries, step.most); got != step.told {
			t.Errorf("step %d, %d of %d: told %v", i, step.entries, step.most, got)
		}
	}
}
