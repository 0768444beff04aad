package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/service"
)

// words writes News in short: + for what began or goes on, - for what is over.
func words(list []News) (out []string) {
	for _, n := range list {
		sign := "+"
		if n.Over {
			sign = "-"
		}
		gone := ""
		if n.Gone {
			gone = " gone"
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s%s %s", sign, n.Reason, n.Object))+gone)
	}
	return out
}

// refusal is that of the first object of these names that a Plan creates or replaces.
func refusal(p dataplane.Plan, names map[string]bool) error {
	for _, c := range p.Changes {
		asked := slices.Clone(c.Created)
		for _, r := range c.Replaced {
			asked = append(asked, r.New)
		}
		for _, o := range asked {
			if names[o.Key.Name] {
				return &dataplane.Refusal{Key: o.Key, Err: errors.New("no such match")}
			}
		}
	}
	return nil
}

// failureWords are the failures that a Journal remembers, and whether they are over.
func failureWords(j *Journal) (out []string, forgotten int) {
	list, forgotten := j.Failures()
	for _, f := range list {
		out = append(out, fmt.Sprintf("%s %s %v", f.Reason, f.Object, f.Over != nil))
	}
	return out, forgotten
}

// What goes wrong is told when it begins, when it looks different, and when it is
// over, and not with every write between.
func TestNews(t *testing.T) {
	b := newFakeBackend()
	var (
		mu    sync.Mutex
		news  []News
		disk  error
		eaten = map[string]bool{} // Services that the kernel refuses
	)
	o := options()
	o.Synced = func(r Result) { mu.Lock(); defer mu.Unlock(); news = append(news, r.News...) }
	b.Refuse = func(p dataplane.Plan) error {
		mu.Lock()
		defer mu.Unlock()
		return cmp.Or(refusal(p, eaten), disk)
	}
	run(t, b, o, func(a *Agent) {
		s := &service.Snapshot{}
		address := map[string]byte{}
		step := func(what string, do func(), want ...string) {
			t.Helper()
			mu.Lock()
			news = nil
			do()
			mu.Unlock()
			a.Publish(s)
			pass(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if got := words(news); !slices.Equal(got, want) {
				t.Errorf("%s:\n%q, want\n%q", what, got, want)
			}
		}
		put := func(names ...string) {
			for _, name := range names {
				address[name]++
				s = s.With(s.Node, []*service.Service{svc(name, netip.AddrFrom4([4]byte{10, name[0], 0, address[name]}).String())}, nil)
			}
		}
		remove := func(name string) { s = s.With(s.Node, nil, []service.Name{{Namespace: "ns", Name: name}}) }

		step("all is well", func() { put("a", "b", "c") })
		step("one cannot be written", func() { b.spoil("b"); put("b") }, "+ServiceInvalid ns/b")
		step("another one changes", func() { put("a") })
		step("the kernel refuses one", func() { eaten["c"] = true; put("c") },
			"+ServiceRefused ns/c", "+ServiceInvalid ns/b", "+ServiceRefused ns/c") // tried again after a second
		step("another one changes again", func() { put("a") })
		step("the one is mended", func() { b.spoil(""); put("b") }, "-ServiceInvalid ns/b")
		step("the other one goes", func() { remove("c") }, "-ServiceRefused ns/c gone")
		step("nothing can be written", func() { disk = errors.New("disk full"); put("a") }, "+SyncFailed", "+SyncFailed")
		step("everything can", func() { disk = nil }, "-SyncFailed")
		step("somebody else removes rules", func() { b.Disturb("services", nil); b.disturb <- dataplane.Notice{} }, "+RulesRepaired")
		step("quiet", func() {})

		got, forgotten := failureWords(a.Journal())
		want := []string{"RulesRepaired  false", "SyncFailed  true", "ServiceInvalid ns/b true", "ServiceRefused ns/c true"}
		if !slices.Equal(got, want) || forgotten != 0 {
			t.Errorf("the journal has %q and forgot %d, want %q", got, forgotten, want)
		}
	})
}

// contested has every Service ask for one key.
type contested struct{ *fakeBackend }

func (b contested) Render(_ service.Node, s *service.Service) ([]dataplane.Object, error) {
	return []dataplane.Object{{Key: dataplane.Key{Container: "services", Name: "192.0.2.1 tcp 80"}, Body: s.Name.Name}}, nil
}

// The loser of an address hears of it, and again when it has it.
func TestNewsOfConflicts(t *testing.T) {
	b := newFakeBackend()
	var news []News
	o := options()
	o.Synced = func(r Result) { news = append(news, r.News...) }
	old, young := svc("old", "10.0.0.1"), svc("young", "10.0.0.2")
	old.Created, young.Created = time.Unix(1, 0), time.Unix(2, 0)
	runFamilies(t, b, []Family{{service.IPv4, contested{b}}}, o, func(a *Agent) {
		s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{young}, nil)
		for _, step := range []struct {
			snapshot *service.Snapshot
			want     []string
		}{
			{s, nil},
			{s.With(s.Node, []*service.Service{old}, nil), []string{"+ServiceAddressConflict ns/young"}},
			{s, []string{"-ServiceAddressConflict ns/young"}},
		} {
			news = nil
			a.Publish(step.snapshot)
			pass(2 * time.Second)
			if got := words(news); !slices.Equal(got, step.want) {
				t.Errorf("%q, want %q", got, step.want)
			}
			for _, n := range news {
				if want := "Service ns/old is older and has what this one asks for too: 192.0.2.1 tcp 80"; n.Message != want {
					t.Errorf("%q, want %q", n.Message, want)
				}
			}
		}
	})
}

// A Journal keeps what lasts rather than what is over, and counts what it forgot.
func TestJournalIsBounded(t *testing.T) {
	var j Journal
	at := time.Unix(0, 0)
	note := func(object string, over bool) {
		at = at.Add(time.Second)
		j.Note(at, News{Object: object, Family: service.IPv4, Reason: ServiceInvalid, Message: "text", Over: over})
	}
	note("ns/lasts", false)
	for i := range 3 * remembered {
		name := fmt.Sprintf("ns/%d", i)
		note(name, false)
		note(name, true)
	}
	note("ns/lasts", false)
	list, forgotten := j.Failures()
	if len(list) != remembered || forgotten != 2*remembered+1 {
		t.Errorf("%d are remembered and %d forgotten", len(list), forgotten)
	}
	if f := list[0]; f.Object != "ns/lasts" || f.Count != 2 || f.Over != nil || !f.First.Equal(time.Unix(1, 0)) || !f.Last.Equal(at) {
		t.Errorf("what lasts is %+v", f)
	}
	if f := list[1]; f.Over == nil || f.Count != 1 {
		t.Errorf("what is over is %+v", f)
	}
}
