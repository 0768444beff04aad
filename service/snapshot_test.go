package service

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// Any sequence of changes holds what a plain map would hold, and Changes from
// any earlier Snapshot leads to the later one.
func TestSnapshotIsAMapWithHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := map[Name]*Service{}
		now := &Snapshot{}
		history := []*Snapshot{now}
		models := []map[Name]*Service{maps.Clone(model)}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var put []*Service
			var gone []Name
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				n := Name{"ns", fmt.Sprintf("s%d", rapid.IntRange(0, 9).Draw(t, "service"))}
				if rapid.Bool().Draw(t, "delete") {
					gone = append(gone, n)
					delete(model, n)
					continue
				}
				put = append(put, &Service{Name: n, Ports: []Port{{Endpoints: make([]Endpoint, rapid.IntRange(0, 3).Draw(t, "endpoints"))}}})
			}
			for _, s := range put { // With puts after it removes
				model[s.Name] = s
			}
			now = now.With(Node{}, put, gone)
			history, models = append(history, now), append(models, maps.Clone(model))
		}
		endpoints := 0
		for n, s := range model {
			endpoints += s.EndpointCount()
			if now.Service(n) != s {
				t.Fatalf("Service(%s) = %p, want %p", n, now.Service(n), s)
			}
		}
		if now.Len() != len(model) || now.Endpoints() != endpoints {
			t.Fatalf("Len %d Endpoints %d, want %d %d", now.Len(), now.Endpoints(), len(model), endpoints)
		}
		i := rapid.IntRange(0, len(history)-1).Draw(t, "from")
		replay := maps.Clone(models[i])
		for c := range now.Changes(history[i]) {
			switch {
			case c.New == nil:
				delete(replay, c.Old.Name)
			case replay[c.New.Name] != c.Old || c.Old == c.New:
				t.Fatalf("change of %s from %p, want %p", c.New.Name, c.Old, replay[c.New.Name])
			default:
				replay[c.New.Name] = c.New
			}
		}
		if !maps.Equal(replay, model) {
			t.Fatalf("replayed %v, want %v", replay, model)
		}
	})
}

func TestLargeClusterHysteresis(t *testing.T) {
	s := &Snapshot{}
	for _, step := range []struct {
		endpoints int
		want      bool
	}{{1000, false}, {1001, true}, {700, true}, {500, true}, {499, false}, {1000, false}} {
		svc := &Service{Name: Name{"ns", "s"}, Ports: []Port{{Endpoints: make([]Endpoint, step.endpoints)}}}
		s = s.With(s.Node, []*Service{svc}, nil)
		if s.Node.LargeCluster != step.want {
			t.Errorf("at %d endpoints: %v, want %v", step.endpoints, s.Node.LargeCluster, step.want)
		}
	}
}
