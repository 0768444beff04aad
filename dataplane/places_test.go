package dataplane

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// checkPlaces tells whether every part is where its holding says, and there is no other.
func checkPlaces(t interface{ Fatalf(string, ...any) }, w *Want) {
	parts := 0
	for name, h := range w.owners {
		i := 0
		for p := h.first(); !p.empty(); p = p.next() {
			c := w.containers[p.container()]
			if c == nil || i >= len(h.places) || int(h.places[i]) >= c.parts.len() || *c.parts.at(h.places[i]) != p {
				t.Fatalf("part %d of %q is not in its place", i, name)
			}
			i, parts = i+1, parts+1
		}
		if i != len(h.places) {
			t.Fatalf("%q has %d parts and %d places", name, i, len(h.places))
		}
	}
	for _, c := range w.containers {
		parts -= c.parts.len()
	}
	if parts != 0 {
		t.Fatalf("%d parts are of no container, or of no owner below 0", parts)
	}
}

// TestPlaces: whoever comes, goes and changes, each holding knows where its parts are.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		s := NewSync(fake)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames).Draw(t, "owner")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				s.Remove(name)
			case 1:
				fake.Refuse = nil
				if rapid.Bool().Draw(t, "refused") {
					fake.Refuse = func(p Plan) error {
						for _, c := range p.Changes {
							for _, o := range c.Created {
								return &Refusal{Key: o.Key, Err: errors.New("no")}
							}
						}
						return nil
					}
				}
				_, _ = s.Apply(t.Context()) // refused or not
			default:
				s.Set(owner(name, rapid.IntRange(0, 1).Draw(t, "age")), ownerObjects(name).Draw(t, "objects"))
			}
			checkPlaces(t, &s.want)
		}
	})
}

// TestAConflictThatEndedBeforeTheFirstWrite: it is settled, though nothing was written
// between.
func TestAConflictThatEndedBeforeTheFirstWrite(t *testing.T) {
	fake := &Fake{Refuse: func(Plan) error { return errors.New("locked") }}
	s := NewSync(fake)
	set := func(i int, key string) {
		s.Set(owner(fmt.Sprintf("ns/%02d", i), 0), []Object{obj("map/M", Keyed, key, fmt.Sprintf("to %d", i))})
	}
	for i := range 2 * indexFrom {
		set(i, fmt.Sprintf("key %02d", i))
	}
	set(1, "key 00")
	r, err := s.Apply(t.Context())
	if err == nil || losers(r.Lost) != "map/M ns/01 loses to ns/00" {
		t.Fatalf("%v, lost %v", err, r.Lost)
	}
	set(1, "key 01")
	fake.Refuse = nil
	r, err = s.Apply(t.Context())
	if err != nil || losers(r.Settled) != "map/M ns/01 loses to ns/00" || len(s.Conflicts()) > 0 {
		t.Fatalf("%v, settled %v, still %v", err, r.Settled, s.Conflicts())
	}
}
