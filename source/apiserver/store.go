package apiserver

import (
	"fmt"

	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan/service"
	"portolan/source/kube"
)

// object is a pointer to an API object.
type object interface {
	comparable
	metav1.Object
}

// kept is what is kept of an object: the kube.Cluster has the rest, in its own form.
type kept struct {
	uid     types.UID
	version string
	// owner is the Service that an EndpointSlice names.
	owner service.Name
}

// store is where a reflector puts what it hears of one resource. It remembers which
// objects there are, to notice after an outage which have gone.
type store[T object] struct {
	source *Source
	put    func(old kept, now T) // old is the zero value for a new object
	remove func(service.Name, kept)
	synced func(first bool, count int) // after each full list

	known map[service.Name]kept
	full  bool // a full list has been seen
}

func newStore[T object](s *Source, put func(old kept, now T), remove func(service.Name, kept), synced func(bool, int)) *store[T] {
	return &store[T]{source: s, put: put, remove: remove, synced: synced, known: map[service.Name]kept{}}
}

func nameIn(o metav1.Object) service.Name {
	return service.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add takes a new object, or a newer form of one.
func (s *store[T]) Add(o any) error { return s.each(o, s.place) }

// Update does the same as Add.
func (s *store[T]) Update(o any) error { return s.each(o, s.place) }

// Delete takes the last form of an object that is gone.
func (s *store[T]) Delete(o any) error {
	return s.each(o, func(t T) { s.forget(nameIn(t)) })
}

// Replace takes everything there is; a version that is known already is no change.
func (s *store[T]) Replace(list []any, _ string) error {
	return s.source.change(func() error {
		there := make(map[service.Name]bool, len(list))
		for i, o := range list {
			t, is := o.(T)
			if !is {
				return fmt.Errorf("apiserver: %T in a list of %T", o, t)
			}
			there[nameIn(t)] = true
			s.place(t)
			list[i] = nil // it is kept in another form
		}
		for name := range s.known {
			if !there[name] {
				s.forget(name)
			}
		}
		first := !s.full
		s.full = true
		s.synced(first, len(list))
		return nil
	})
}

// Resync is asked for by no reflector here: there is nothing to repeat.
func (s *store[T]) Resync() error { return nil }

func (s *store[T]) each(o any, do func(T)) error {
	t, is := o.(T)
	if !is {
		return fmt.Errorf("apiserver: %T among %T", o, t)
	}
	return s.source.change(func() error {
		do(t)
		return nil
	})
}

func (s *store[T]) place(o T) {
	name := nameIn(o)
	old := s.known[name]
	now := kept{uid: o.GetUID(), version: o.GetResourceVersion()}
	if slice, is := any(o).(*discovery.EndpointSlice); is {
		now.owner = kube.OwnerOf(slice)
	}
	if old == now {
		return
	}
	s.known[name] = now
	s.put(old, o)
}

func (s *store[T]) forget(name service.Name) {
	last, is := s.known[name]
	if !is {
		return
	}
	delete(s.known, name)
	s.remove(name, last)
}
