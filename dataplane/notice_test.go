package dataplane

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// guarded is a Sync over a Fake, with a shared container, one of Base and one of a
// Service in nat, and one in filter.
func guarded(t *testing.T) (*Fake, *Sync) {
	t.Helper()
	f := &Fake{}
	s := NewSync(f)
	key := func(container string, rank int, name string) Key {
		return Key{Container: container, Rank: rank, Name: name}
	}
	s.Set(Owner{}, []Object{
		{key("nat/PREROUTING", Keyed, "1"), "-j A"},
		{key("nat/PREROUTING", Keyed, "2"), "-j B"},
		{key("nat/MARK", 0, ""), "-j MARK"},
		{key("filter/FORWARD", Keyed, "1"), "-j C"},
	})
	s.Set(Owner{Name: "ns/a"}, []Object{{key("nat/SVC-A", 0, ""), "-j DNAT"}, {key("filter/SERVICES", 0, "a"), "-j REJECT"}})
	if _, err := s.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, s
}

// TestRepair: what a Glance misses is written; of the rest nothing is touched, and
// the next write looks at everything.
func TestRepair(t *testing.T) {
	f, s := guarded(t)
	f.Disturb("nat/SVC-A", nil)
	f.Disturb("nat/MARK", []string{})
	f.Disturb("filter/SERVICES", []string{"-j ACCEPT"})
	f.containers["nat/PREROUTING"] = f.containers["nat/PREROUTING"][:1]
	observed := f.Observed
	seen := []Object{{Key: Key{Container: "nat/PREROUTING", Rank: Keyed}}, f.containers["nat/PREROUTING"][0]}
	r, err := s.Repair(t.Context(), Glance{Seen: seen, Emptied: []string{"nat/"}})
	if err != nil {
		t.Fatal(err)
	}
	want := Damage{Containers: 3, Missing: 3, Lines: []string{"nat/MARK - -j MARK", "nat/PREROUTING - -j B", "nat/SVC-A - -j DNAT"}}
	if d := r.Damage; d.Containers != want.Containers || d.Missing != want.Missing || d.Foreign != 0 || !slices.Equal(d.Lines, want.Lines) {
		t.Errorf("damage %+v, want %+v", d, want)
	}
	if f.Observed != observed {
		t.Error("a repair looked at everything")
	}
	if got := f.Content(); len(got["nat/PREROUTING"]) != 2 || len(got["nat/SVC-A"]) != 1 || got["filter/SERVICES"][0] != "-j ACCEPT" {
		t.Errorf("content %v", got)
	}
	if r, err = s.Apply(t.Context()); err != nil || f.Observed != observed+1 {
		t.Errorf("the write after it observed %d times: %v", f.Observed-observed, err)
	}
	if d := r.Damage; d.Containers != 1 || d.Missing != 1 || d.Foreign != 1 || f.Content()["filter/SERVICES"][0] != "-j REJECT" {
		t.Errorf("damage %+v, content %v", d, f.Content())
	}
}

// TestDamageIsOfOthers: what had to be written anyway is nobody's fault, and neither
// is what a write that failed has left.
func TestDamageIsOfOthers(t *testing.T) {
	f, s := guarded(t)
	f.Disturb("nat/SVC-A", nil)
	s.Set(Owner{Name: "ns/a"}, []Object{{Key{Container: "nat/SVC-A"}, "-j OTHER"}})
	if r, err := s.Reconcile(t.Context()); err != nil || !r.Damage.None() {
		t.Errorf("damage %+v (%v)", r.Damage, err)
	}
	f.Refuse = func(Plan) error { return errors.New("no lock") }
	f.Disturb("nat/SVC-A", nil)
	if r, err := s.Reconcile(t.Context()); err == nil || r.Damage.Containers != 1 {
		t.Errorf("damage %+v (%v)", r.Damage, err)
	}
	f.Refuse = nil
	if r, err := s.Reconcile(t.Context()); err != nil || !r.Damage.None() || r.Writes != 1 {
		t.Errorf("told twice: %+v (%v)", r, err)
	}
}

// ending ends a context when it is asked to write, and minds the context it gets.
type ending struct {
	*Fake
	end context.CancelFunc
}

func (e ending) Apply(ctx context.Context, p Plan) error {
	e.end()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return e.Fake.Apply(ctx, p)
}

// TestAWriteThatHasBegunEnds: the end of the context stops what has not begun.
func TestAWriteThatHasBegunEnds(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	f := &Fake{}
	s := NewSync(ending{f, end})
	s.Set(Owner{}, []Object{{Key{Container: "c"}, "-j A"}})
	if _, err := s.Apply(ctx); err != nil || len(f.Content()["c"]) != 1 {
		t.Errorf("content %v, %v", f.Content(), err)
	}
	s.Set(Owner{}, []Object{{Key{Container: "c"}, "-j B"}})
	if _, err := s.Apply(ctx); !errors.Is(err, context.Canceled) || f.Content()["c"][0] != "-j A" {
		t.Errorf("content %v, %v", f.Content(), err)
	}
	if _, err := s.Apply(t.Context()); err != nil || f.Content()["c"][0] != "-j B" {
		t.Errorf("content %v, %v", f.Content(), err)
	}
}

// TestTellJoins: what nobody has taken up yet is not lost.
func TestTellJoins(t *testing.T) {
	c := make(chan Notice, 1)
	g := &Glance{}
	Tell(c, Notice{By: "a", Glance: g})
	Tell(c, Notice{Urgent: true})
	Tell(c, Notice{By: "b"})
	if n := <-c; n.By != "b" || !n.Urgent || n.Glance != g {
		t.Errorf("%+v", n)
	}
}
