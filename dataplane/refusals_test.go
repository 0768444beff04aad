package dataplane

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// refuser refuses what is bad, and names it more or less well.
func refuser(t *rapid.T) func(Plan) error {
	return func(p Plan) error {
		var bad, all []Key
		for _, c := range p.Changes {
			objects := slices.Concat(c.Created, c.Lines)
			for _, r := range c.Replaced {
				objects = append(objects, r.New)
			}
			for _, o := range objects {
				all = append(all, o.Key)
				if strings.HasPrefix(o.Body, "bad") {
					bad = append(bad, o.Key)
				}
			}
		}
		if len(bad) == 0 {
			return nil
		}
		r := &Refusal{Err: errors.New("no")}
		switch rapid.IntRange(0, 4).Draw(t, "named") {
		case 0:
		case 1:
			r.Key.Container = bad[0].Container
		case 2: // another, which may be of anybody
			r.Key = rapid.SampledFrom(all).Draw(t, "blamed")
		default:
			r.Key = rapid.SampledFrom(bad).Draw(t, "at fault")
		}
		return r
	}
}

// TestRefusalsConverge: whatever is refused, and whoever is blamed for it, those at fault
// keep what they had and all others get what they ask for.
func TestRefusalsConverge(t *testing.T) {
	from, share := indexFrom, indexShare
	defer func() { indexFrom, indexShare = from, share }()
	rapid.Check(t, func(t *rapid.T) {
		indexFrom, indexShare = from, share
		if rapid.Bool().Draw(t, "indexed") {
			indexFrom, indexShare = 1, 1
		}
		fake := &Fake{Refuse: refuser(t)}
		s := NewSync(fake)
		wanted, good := state{}, state{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			name := rapid.SampledFrom(ownerNames[1:]).Draw(t, "owner")
			e := wanted[name]
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				delete(wanted, name)
				s.Remove(name)
				continue
			case 1, 2, 3, 4, 5:
				e.owner, e.objects = owner(name, rapid.IntRange(0, 2).Draw(t, "age")), ownerObjects(name).Draw(t, "objects")
				if rapid.IntRange(0, 3).Draw(t, "bad") == 0 {
					e.objects = append(e.objects, obj(rapid.SampledFrom([]string{"nat/SHARED", "nat/OWN-" + name}).Draw(t, "where"), 5, name, "bad "+name))
				}
				wanted[name] = e
				s.Set(e.owner, e.objects)
				continue
			case 6: // a process that knows nothing of before
				s, good = NewSync(fake), state{}
				for _, e := range wanted {
					s.Set(e.owner, e.objects)
				}
			}
			writeWithRefusals(t, s, rapid.Bool().Draw(t, "look"), wanted, good)
			if got, want := content(fake), sortedKeyed(expected(good)); !reflect.DeepEqual(got, want) {
				t.Fatalf("kernel holds %v, want %v", got, want)
			}
		}
	})
}

// writeWithRefusals writes, and notes what is good: of those at fault what they had.
func writeWithRefusals(t *rapid.T, s *Sync, look bool, wanted, good state) {
	write := s.Apply
	if look {
		write = s.Reconcile
	}
	r, err := write(t.Context())
	for range 9 { // a container may be taken for one that does not go, until the next look
		if err == nil && slices.ContainsFunc(r.Rejected, func(r Rejection) bool { return r.Owner == "" }) {
			r, err = s.Reconcile(t.Context())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(good, func(name string, _ asks) bool { _, is := wanted[name]; return !is })
	var bad, rejected []string
	for name, e := range wanted {
		if slices.ContainsFunc(e.objects, func(o Object) bool { return strings.HasPrefix(o.Body, "bad") }) {
			bad = append(bad, name)
		} else {
			good[name] = e
		}
	}
	slices.Sort(bad)
	for _, r := range r.Rejected {
		rejected = append(rejected, r.Owner)
	}
	if !slices.Equal(rejected, bad) {
		t.Fatalf("rejected %v, at fault are %v", rejected, bad)
	}
}
