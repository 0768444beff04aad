package dataplane

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func losers(list []Conflict) string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s %s loses to %s", c.Key.Container, c.Loser.Name, c.Winner.Name))
	}
	return strings.Join(out, "; ")
}

func TestInvariant3OlderOwnerWinsAndTheLoserTakesOverInOneWrite(t *testing.T) {
	fake := &Fake{}
	s := NewSync(fake)
	young := []Object{obj("nat/S", 0, "ip tcp 80", "to young"), obj("filter/S", 0, "ip tcp 80", "refuse")}
	s.Set(owner("ns/young", 1), young)
	s.Set(owner("ns/old", 2), []Object{obj("nat/S", 0, "ip tcp 80", "to old"), obj("filter/S", 0, "ip tcp 80", "")})
	r := mustSync(t, s)
	if got := fake.Content(); !reflect.DeepEqual(got, map[string][]string{"nat/S": {"to old"}}) {
		t.Fatalf("kernel holds %v", got)
	}
	const both = "filter/S ns/young loses to ns/old; nat/S ns/young loses to ns/old"
	if losers(r.Lost) != both || len(r.Settled) != 0 || losers(s.Conflicts()) != both {
		t.Fatalf("lost %v, settled %v", r.Lost, r.Settled)
	}
	s.Set(owner("ns/older", 3), young[:1])
	r = mustSync(t, s)
	// The youngest asks for the same as the oldest, and so has what it wants.
	if losers(r.Lost) != "nat/S ns/old loses to ns/older" || losers(r.Settled) != "nat/S ns/young loses to ns/old" || r.Replaced != 1 {
		t.Fatalf("lost %v, settled %v", r.Lost, r.Settled)
	}
	s.Remove("ns/older")
	mustSync(t, s)
	s.Remove("ns/old")
	p := s.Plan()
	if len(p.Changes) != 2 || len(p.Changes[1].Replaced) != 1 || p.Changes[1].Replaced[0].New.Body != "to young" {
		t.Fatalf("plan:\n%s", p)
	}
	r = mustSync(t, s)
	if got := fake.Content(); !reflect.DeepEqual(got, map[string][]string{"nat/S": {"to young"}, "filter/S": {"refuse"}}) {
		t.Fatalf("kernel holds %v", got)
	}
	if len(s.Conflicts()) != 0 || len(r.Lost) != 0 || losers(r.Settled) != both || r.Writes != 1 {
		t.Fatalf("conflicts %v, report %+v", s.Conflicts(), r)
	}
}

func TestInvariant3ASharedObjectLivesUntilItsLastOwnerStopsAsking(t *testing.T) {
	fake := &Fake{}
	s := NewSync(fake)
	names := []string{"ns/a", "ns/b", "ns/c"}
	for _, name := range names {
		s.Set(owner(name, 1), []Object{obj("nat/S", 0, "shared", "same"), obj("nat/OWN-"+name, 0, "", "x")})
	}
	mustSync(t, s)
	for i, name := range names {
		if got := fake.Content()["nat/S"]; !slices.Equal(got, []string{"same"}) {
			t.Fatalf("with %d owners: %v", len(names)-i, got)
		}
		s.Remove(name)
		mustSync(t, s)
	}
	if got := fake.Content(); len(got) != 0 {
		t.Fatalf("with none: %v", got)
	}
}

// A restart that asks for the same writes nothing; one that asks for something
// else in one container writes that container alone.
func TestInvariant5ARestartWritesOnlyWhatDiffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		s, again := NewSync(fake), NewSync(fake)
		for _, name := range ownerNames {
			o := ownerObjects(name).Draw(t, "objects")
			s.Set(owner(name, 0), o)
			again.Set(owner(name, 0), o)
		}
		mustApply(t, s, false)
		if r, err := again.Apply(t.Context()); err != nil || r.Writes != 0 {
			t.Fatalf("%+v %v", r, err)
		}
		third := NewSync(fake)
		for _, h := range again.want.owners {
			third.Set(h.owner, h.objects)
		}
		third.Set(owner("ns/new", 0), []Object{obj("nat/NEW", 0, "", "x")})
		if r, err := third.Apply(t.Context()); err != nil || r.Containers != 1 || r.Created != 1 || r.Deleted+r.Replaced != 0 {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

// A container that is shared with others is never removed, what is in it is
// changed line by line, and what others ask for too stays.
func TestInvariant6SharedContainersAreNeverWrittenAsAWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		s := NewSync(fake)
		fake.Refuse = func(p Plan) error {
			for _, c := range p.Changes {
				if shared := c.Container == "nat/OUTPUT"; shared != c.Keyed || (shared && c.Remove) {
					t.Fatalf("plan:\n%s", p)
				}
			}
			return nil
		}
		ensured := obj("nat/OUTPUT", Ensured, "theirs too", "jump to theirs")
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames).Draw(t, "owner")
			s.Set(owner(name, 0), append(ownerObjects(name).Draw(t, "objects"), ensured))
			mustApply(t, s, false)
		}
		for _, name := range ownerNames {
			s.Remove(name)
		}
		mustApply(t, s, false)
		if got := fake.Content(); !reflect.DeepEqual(got, map[string][]string{"nat/OUTPUT": {ensured.Body}}) {
			t.Fatalf("kernel holds %v", got)
		}
	})
}

// Whatever part of a write was done before it failed, the next one ends at what
// is wanted, also when what is wanted changed in between.
func TestInvariant7AFailedWriteLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		s := NewSync(fake)
		st := state{}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames).Draw(t, "owner")
			e := st[name]
			e.owner, e.objects = owner(name, 0), ownerObjects(name).Draw(t, "objects")
			st[name] = e
			s.Set(e.owner, e.objects)
			written := rapid.IntRange(0, 4).Draw(t, "written")
			fake.Refuse = func(p Plan) error {
				if len(p.Changes) > written {
					return errors.New("no memory")
				}
				return nil
			}
			if r, err := s.Apply(t.Context()); err == nil && r.Containers > written {
				t.Fatalf("a write that failed was reported as done: %+v", r)
			}
		}
		fake.Refuse = nil
		mustApply(t, s, false)
		if got, want := content(fake), sortedKeyed(expected(st)); !reflect.DeepEqual(got, want) {
			t.Fatalf("kernel holds %v, want %v", got, want)
		}
	})
}
