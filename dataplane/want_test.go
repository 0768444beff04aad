package dataplane

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func obj(container string, rank int, name, body string) Object {
	return Object{Key{container, rank, name}, body}
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func owner(name string, age int) Owner {
	return Owner{Name: name, Since: epoch.Add(-time.Duration(age) * time.Hour)}
}

// ownerObjects draws what one owner asks for: lines in a chain of its own, in
// chains shared with others under contended names, and in a keyed container.
func ownerObjects(name string) *rapid.Generator[[]Object] {
	return rapid.Custom(func(t *rapid.T) []Object {
		var out []Object
		for i := range rapid.IntRange(0, 3).Draw(t, "own") {
			out = append(out, obj("nat/OWN-"+name, i, "", rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "body")))
		}
		for range rapid.IntRange(0, 4).Draw(t, "shared") {
			out = append(out, obj(
				rapid.SampledFrom([]string{"nat/SHARED", "filter/SHARED"}).Draw(t, "chain"), rapid.IntRange(0, 1).Draw(t, "rank"),
				rapid.SampledFrom([]string{"", "ip1", "ip2", "ip3"}).Draw(t, "frontend"),
				rapid.SampledFrom([]string{"", "to " + name, "refuse"}).Draw(t, "body")))
		}
		for range rapid.IntRange(0, 2).Draw(t, "keyed") {
			out = append(out, obj("nat/OUTPUT", Keyed, rapid.SampledFrom([]string{"j1", "j2"}).Draw(t, "jump"),
				rapid.SampledFrom([]string{"jump", "jump " + name}).Draw(t, "body")))
		}
		return out
	})
}

// lockedAfter fails all plans with more than n changes.
func lockedAfter(n int) func(Plan) error {
	return func(p Plan) error {
		if len(p.Changes) > n {
			return errors.New("locked")
		}
		return nil
	}
}

var ownerNames = []string{"", "a/a", "b/b", "c/c", "d/d"}

// asks is what one owner asks for.
type asks struct {
	owner   Owner
	objects []Object
}

type state map[string]asks

// expected computes the content of the kernel in the plainest way.
func expected(st state) map[string][]string {
	type won struct {
		by Owner
		o  Object
	}
	best := map[Key]won{}
	for _, s := range st {
		mine := map[Key]bool{}
		for _, o := range s.objects {
			if mine[o.Key] {
				continue
			}
			mine[o.Key] = true
			if w, ok := best[o.Key]; !ok || s.owner.Compare(w.by) < 0 {
				best[o.Key] = won{s.owner, o}
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(best), Key.Compare)
	out := map[string][]string{}
	for _, k := range keys {
		b := best[k].o.Body
		if out[k.Container] == nil && (b != "" || k.Name == "" || k.Rank < 0) {
			out[k.Container] = []string{}
		}
		if b != "" {
			out[k.Container] = append(out[k.Container], b)
		}
	}
	return out
}

// content ignores the order in keyed containers and those without lines.
func content(f *Fake) map[string][]string {
	out := f.Content()
	if slices.Sort(out["nat/OUTPUT"]); len(out["nat/OUTPUT"]) == 0 {
		delete(out, "nat/OUTPUT")
	}
	return out
}

func sortedKeyed(m map[string][]string) map[string][]string {
	if slices.Sort(m["nat/OUTPUT"]); len(m["nat/OUTPUT"]) == 0 {
		delete(m, "nat/OUTPUT")
	}
	return m
}

// Any sequence of sets, removals, failing and half-written applies, and
// meddling of others ends at what the last sets ask for; the sync after it is
// empty and calls nobody.
func TestSyncConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fake := &Fake{}
		s := NewSync(fake)
		st := state{}
		meddled := false
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames).Draw(t, "owner")
			switch rapid.IntRange(0, 7).Draw(t, "step") {
			case 0, 1, 2:
				e := st[name]
				e.owner = owner(name, rapid.IntRange(0, 2).Draw(t, "age"))
				e.objects = ownerObjects(name).Draw(t, "objects")
				st[name] = e
				s.Set(e.owner, e.objects)
			case 3:
				delete(st, name)
				s.Remove(name)
			case 4:
				fake.Refuse = lockedAfter(rapid.IntRange(0, 2).Draw(t, "written"))
				_, _ = s.Apply(t.Context()) // some are small enough to succeed
				fake.Refuse = nil
			case 5:
				fake.Disturb(rapid.SampledFrom([]string{"nat/SHARED", "nat/OWN-a/a", "filter/SHARED"}).Draw(t, "meddle"),
					rapid.SampledFrom([][]string{nil, {}, {"foreign"}, {"x", "foreign"}}).Draw(t, "with"))
				meddled = true
			default:
				mustApply(t, s, meddled)
				meddled = false
				if got, want := content(fake), sortedKeyed(expected(st)); !reflect.DeepEqual(got, want) {
					t.Fatalf("kernel holds %v, want %v", got, want)
				}
			}
		}
		mustApply(t, s, meddled)
		if got, want := content(fake), sortedKeyed(expected(st)); !reflect.DeepEqual(got, want) {
			t.Fatalf("kernel holds %v, want %v", got, want)
		}
		calls := fake.Applied
		r, err := s.Apply(t.Context())
		if err != nil || fake.Applied != calls || r.Containers != 0 || !s.Plan().Empty() {
			t.Fatalf("second sync wrote: %+v %v\n%s", r, err, s.Plan())
		}
		if r, err = s.Reconcile(t.Context()); err != nil || fake.Applied != calls || r.Writes != 0 {
			t.Fatalf("reconcile after sync wrote: %+v %v", r, err)
		}
	})
}

func mustApply(t *rapid.T, s *Sync, meddled bool) {
	apply := s.Apply
	if meddled {
		apply = s.Reconcile
	}
	if _, err := apply(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A Want that saw many sets plans the same as one that saw only the last.
func TestWantForgetsTheWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w, direct Want
		last := state{}
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames).Draw(t, "owner")
			e := last[name]
			e.owner, e.objects = owner(name, rapid.IntRange(0, 2).Draw(t, "age")), ownerObjects(name).Draw(t, "objects")
			last[name] = e
			w.Set(e.owner, e.objects)
		}
		for _, e := range last {
			direct.Set(e.owner, e.objects)
		}
		nobody := func(string) bool { return false }
		if got, want := w.Plan(nobody), direct.Plan(nobody); !reflect.DeepEqual(got, want) {
			t.Fatalf("plan depends on the way:\n%s\nwant\n%s", got, want)
		}
		if got, want := w.Conflicts(), direct.Conflicts(); !reflect.DeepEqual(got, want) {
			t.Fatalf("conflicts %v, want %v", got, want)
		}
		if !reflect.DeepEqual(w.Dirty(), direct.Dirty()) || dirtyCount(&w) != dirtyCount(&direct) || len(w.containers) != len(direct.containers) {
			t.Fatalf("dirty %v, want %v", w.Dirty(), direct.Dirty())
		}
	})
}

func mustSync(t *testing.T, s *Sync) Report {
	t.Helper()
	r, err := s.Apply(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLoserTakesOverInTheSamePlan(t *testing.T) {
	fake := &Fake{}
	s := NewSync(fake)
	s.Set(owner("ns/young", 1), []Object{obj("nat/S", 0, "ip tcp 80", "to young"), obj("filter/S", 0, "ip tcp 80", "refuse")})
	s.Set(owner("ns/old", 2), []Object{obj("nat/S", 0, "ip tcp 80", "to old"), obj("filter/S", 0, "ip tcp 80", "")})
	mustSync(t, s)
	if got := fake.Content(); !reflect.DeepEqual(got, map[string][]string{"nat/S": {"to old"}}) {
		t.Fatalf("kernel holds %v", got)
	}
	lost := s.Conflicts()
	if len(lost) != 2 || lost[1].Winner.Name != "ns/old" || lost[1].Loser.Name != "ns/young" {
		t.Fatalf("conflicts %v", lost)
	}
	s.Remove("ns/old")
	p := s.Plan()
	if len(p.Changes) != 2 || len(p.Changes[1].Replaced) != 1 || p.Changes[1].Replaced[0].New.Body != "to young" {
		t.Fatalf("plan:\n%s", p)
	}
	mustSync(t, s)
	if got := fake.Content(); !reflect.DeepEqual(got, map[string][]string{"nat/S": {"to young"}, "filter/S": {"refuse"}}) {
		t.Fatalf("kernel holds %v", got)
	}
	if lost := s.Conflicts(); len(lost) != 0 {
		t.Fatalf("conflicts %v", lost)
	}
}

func TestSwapOfOneAddressIsTwoReplacements(t *testing.T) {
	fake := &Fake{}
	s := NewSync(fake)
	set := func(a, b string) {
		s.Set(owner("ns/a", 1), []Object{obj("nat/S", 0, a, "to a")})
		s.Set(owner("ns/b", 1), []Object{obj("nat/S", 0, b, "to b")})
	}
	set("ip1", "ip2")
	mustSync(t, s)
	set("ip2", "ip1")
	if r := mustSync(t, s); r.Replaced != 2 || r.Created != 0 || r.Deleted != 0 || r.Containers != 1 {
		t.Fatalf("report %+v", r)
	}
	set("ip1", "ip2")
	set("ip2", "ip1")
	if r := mustSync(t, s); r.Writes != 0 {
		t.Fatalf("a change taken back was written: %+v", r)
	}
}

func TestFirstWriteObserves(t *testing.T) {
	fake := &Fake{Unreadable: errors.New("no save")}
	s := NewSync(fake)
	s.Set(Owner{}, []Object{obj("nat/B", 0, "", "x")})
	if _, err := s.Apply(t.Context()); err == nil || !strings.Contains(err.Error(), "no save") || fake.Applied != 0 {
		t.Fatalf("wrote without looking: %v", err)
	}
	fake.Unreadable = nil
	fake.Disturb("nat/B", []string{"x"})
	if r := mustSync(t, s); r.Writes != 0 {
		t.Fatalf("what was there was written again: %+v", r)
	}
}

func dirtyCount(w *Want) (n int) {
	for range w.allDirty() {
		n++
	}
	return n
}
