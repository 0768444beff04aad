package dataplane

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// One or more owners ask for what the kernel refuses; all others are
// programmed, whether the refusal names an object, the wrong one, or none.
func TestSyncHoldsBackRefusedOwners(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hint := rapid.SampledFrom([]string{"right", "wrong", "none"}).Draw(t, "hint")
		fake := &Fake{}
		fake.Refuse = func(p Plan) error { return refuseBad(p, hint) }
		s := NewSync(fake)
		bad := map[string]bool{}
		n := rapid.IntRange(1, 12).Draw(t, "owners")
		set := func(i int, body string) {
			name := fmt.Sprintf("ns/s%02d", i)
			s.Set(owner(name, 0), []Object{obj("nat/OWN-"+name, 0, "", body), obj("nat/SHARED", 0, name, body)})
			bad[name] = body == "bad"
		}
		for i := range n {
			set(i, rapid.SampledFrom([]string{"good", "fine", "bad"}).Draw(t, "body"))
		}
		check := func() {
			r, err := s.Apply(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got, want []string
			for _, rej := range r.Rejected {
				got = append(got, rej.Owner)
			}
			for name, is := range bad {
				if is {
					want = append(want, name)
				}
				if own := fake.Content()["nat/OWN-"+name]; !is && len(own) != 1 {
					t.Fatalf("%s is held back by others: %v", name, fake.Content())
				}
			}
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Fatalf("rejected %v, want %v (hint %s)", got, want, hint)
			}
		}
		check()
		calls := fake.Applied
		if _, err := s.Apply(t.Context()); err != nil || fake.Applied != calls {
			t.Fatalf("apply with nothing but rejected owners called the kernel (%v)", err)
		}
		set(0, "bad")
		check()
		set(0, "mended")
		check()
	})
}

func refuseBad(p Plan, hint string) error {
	for i, c := range p.Changes {
		for j, o := range c.Lines {
			if o.Body != "bad" {
				continue
			}
			refusal := &Refusal{Err: errors.New("bad line")}
			switch {
			case hint == "right":
				refusal.Key = o.Key
			case hint == "wrong" && j+1 < len(c.Lines):
				refusal.Key = c.Lines[j+1].Key
			case hint == "wrong" && i+1 < len(p.Changes) && len(p.Changes[i+1].Lines) > 0:
				refusal.Key = p.Changes[i+1].Lines[0].Key
			}
			return fmt.Errorf("restore: %w", refusal)
		}
	}
	return nil
}

// Who is refused only because others have just removed what its lines lean on is not at
// fault: with that put back it is written too, by the same Apply.
func TestRefusedForWhatOthersRemoved(t *testing.T) {
	fake := &Fake{}
	fake.Refuse = func(p Plan) error {
		here := fake.Content()
		for _, c := range p.Changes {
			if c.Container == "nat/MARK" {
				here["nat/MARK"] = []string{"mark"}
			}
		}
		for _, c := range p.Changes {
			for _, o := range c.Lines {
				if o.Body == "jump" && here["nat/MARK"] == nil {
					return &Refusal{Key: o.Key, Err: errors.New("no chain MARK")}
				}
			}
		}
		return nil
	}
	s := NewSync(fake)
	s.Set(owner("", 0), []Object{obj("nat/MARK", 0, "", "mark")})
	s.Set(owner("ns/a", 1), []Object{obj("nat/A", 0, "", "jump")})
	mustSync(t, s)
	fake.Disturb("nat/MARK", nil)
	s.Set(owner("ns/b", 1), []Object{obj("nat/B", 0, "", "jump")})
	if r := mustSync(t, s); len(r.Rejected) != 0 || fake.Content()["nat/B"] == nil || fake.Content()["nat/MARK"] == nil {
		t.Fatalf("kernel holds %v, rejected %v", fake.Content(), r.Rejected)
	}
}

// A held owner keeps in the kernel what it had.
func TestRejectedChangeKeepsTheLastGoodVersion(t *testing.T) {
	fake := &Fake{Refuse: func(p Plan) error { return refuseBad(p, "right") }}
	s := NewSync(fake)
	s.Set(owner("ns/a", 1), []Object{obj("nat/A", 0, "", "good"), obj("nat/A2", 0, "", "part")})
	mustSync(t, s)
	s.Set(owner("ns/a", 1), []Object{obj("nat/A", 0, "", "bad")})
	s.Set(owner("ns/b", 1), []Object{obj("nat/B", 0, "", "good")})
	r := mustSync(t, s)
	want := map[string][]string{"nat/A": {"good"}, "nat/A2": {"part"}, "nat/B": {"good"}}
	if got := fake.Content(); !reflect.DeepEqual(got, want) || len(r.Rejected) != 1 || r.Rejected[0].Owner != "ns/a" {
		t.Fatalf("kernel holds %v, rejected %v", got, r.Rejected)
	}
	s.Set(owner("ns/a", 1), []Object{obj("nat/A", 0, "", "better")})
	mustSync(t, s)
	want = map[string][]string{"nat/A": {"better"}, "nat/B": {"good"}}
	if got := fake.Content(); !reflect.DeepEqual(got, want) {
		t.Fatalf("kernel holds %v", got)
	}
}

// Who lost a key so far, and is refused when it would get it, keeps the rest of what it
// has; the winner goes all the same.
func TestRefusedHeirLeavesNothingInForce(t *testing.T) {
	fake := &Fake{Refuse: func(p Plan) error { return refuseBad(p, "right") }}
	s := NewSync(fake)
	heir := func(body string) {
		s.Set(owner("ns/heir", 1), []Object{obj("nat/SHARED", 0, "key", body), obj("nat/SHARED", 0, "other", "mine")})
	}
	holds := func(rejected int, lines ...string) {
		t.Helper()
		r := mustSync(t, s)
		if got := fake.Content()["nat/SHARED"]; !reflect.DeepEqual(got, lines) || len(r.Rejected) != rejected {
			t.Fatalf("kernel holds %v, rejected %v", got, r.Rejected)
		}
	}
	s.Set(owner("ns/winner", 2), []Object{obj("nat/SHARED", 0, "key", "good")})
	heir("bad")
	holds(0, "good", "mine")
	s.Remove("ns/winner")
	holds(1, "mine")
	holds(1, "mine")
	if r, err := s.Reconcile(t.Context()); err != nil || len(r.Rejected) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	holds(1, "mine")
	heir("better")
	holds(0, "better", "mine")
}

func TestContainerThatCannotGoIsKept(t *testing.T) {
	fake := &Fake{}
	fake.Refuse = func(p Plan) error {
		for _, c := range p.Changes {
			if c.Remove {
				return &Refusal{Key: Key{Container: c.Container}, Err: errors.New("busy")}
			}
		}
		return nil
	}
	fake.Disturb("nat/OLD", []string{"x"})
	s := NewSync(fake)
	s.Set(owner("ns/a", 1), []Object{obj("nat/A", 0, "", "good")})
	r := mustSync(t, s)
	if fake.Content()["nat/A"] == nil || len(r.Rejected) != 1 || r.Rejected[0].Key.Container != "nat/OLD" {
		t.Fatalf("%v, rejected %v", fake.Content(), r.Rejected)
	}
}

// After a start, when it is not yet known what of the kernel's content is whose,
// the search for the one at fault takes nothing away from the others, not even
// for a moment.
func TestSearchAfterAStartKeepsOthersUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		n := rapid.IntRange(2, 9).Draw(t, "owners")
		bad := rapid.IntRange(0, n-1).Draw(t, "bad")
		hint := rapid.SampledFrom([]string{"right", "wrong", "none"}).Draw(t, "hint")
		fill := func(s *Sync, badBody string) {
			for i := range n {
				name, body := fmt.Sprintf("ns/s%02d", i), "good"
				if i == bad {
					body = badBody
				}
				s.Set(owner(name, 0), []Object{obj("nat/OWN-"+name, 0, "", body), obj("nat/SHARED", 0, name, body+" "+name)})
			}
		}
		before := NewSync(fake)
		fill(before, "good")
		before.Set(owner("ns/gone", 0), []Object{obj("nat/OWN-ns/gone", 0, "", "x")})
		if _, err := before.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		fake.Refuse = func(p Plan) error {
			err := refuseBad(p, hint)
			for i := range n {
				name := fmt.Sprintf("ns/s%02d", i)
				for _, c := range p.Changes {
					lost := c.Remove || (c.Container == "nat/SHARED" && !slices.ContainsFunc(c.Lines, func(o Object) bool { return o.Key.Name == name }))
					if err == nil && i != bad && lost && (c.Container == "nat/SHARED" || c.Container == "nat/OWN-"+name) {
						t.Fatalf("%s is taken down:\n%s", name, p)
					}
				}
			}
			return err
		}
		s := NewSync(fake)
		fill(s, "bad")
		r, err := s.Apply(t.Context())
		if err != nil || len(r.Rejected) != 1 || r.Rejected[0].Owner != fmt.Sprintf("ns/s%02d", bad) {
			t.Fatalf("%+v %v", r, err)
		}
		c := fake.Content()
		if len(c) != n || len(c["nat/SHARED"]) != n-1 { // n-1 own chains and the shared one
			t.Fatalf("kernel holds %v", c)
		}
		if r, err := s.Apply(t.Context()); err != nil || r.Writes != 0 {
			t.Fatalf("second write: %+v %v", r, err)
		}
	})
}
