package apiserver

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portolan/service"
)

// object is a pointer to an API object.
type object interface {
	comparable
	metav1.Object
}

// store is where a reflector puts what it hears of one resource. It remembers which
// objects there are, to notice after an outage which have gone; they are the ones
// the kube.Cluster has, not copies.
type store[T object] struct {
	source *Source
	put    func(old, now T) // old is the zero value for a new object
	remove func(T)
	synced func(first bool, count int) // after each full list

	known map[service.Name]T
	full  bool // a full list has been seen
}

func newStore[T object](s *Source, put func(old, now T), remove func(T), synced func(bool, int)) *store[T] {
	return &store[T]{source: s, put: put, remove: remove, synced: synced, known: map[service.Name]T{}}
}

func (s *store[T]) name(o T) service.Name {
	return service.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Add takes a new object, or a newer form of one.
func (s *store[T]) Add(o any) error { return s.each(o, s.place) }

// Update does the same as Add.
func (s *store[T]) Update(o any) error { return s.each(o, s.place) }

// Delete takes the last form of an object that is gone.
func (s *store[T]) Delete(o any) error { return s.each(o, s.forget) }

// Replace takes everything there is; a version that is known already is no change.
func (s *store[T]) Replace(list []any, _ string) error {
	return s.source.change(func() error {
		there := make(map[service.Name]bool, len(list))
		for _, o := range list {
			t, is := o.(T)
			if !is {
				return fmt.Errorf("apiserver: %T in a list of %T", o, t)
			}
			there[s.name(t)] = true
			s.place(t)
		}
		for name, o := range s.known {
			if !there[name] {
				s.forget(o)
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
	name := s.name(o)
	old, is := s.known[name]
	if is && old.GetUID() == o.GetUID() && old.GetResourceVersion() == o.GetResourceVersion() {
		return
	}
	s.known[name] = o
	s.put(old, o)
}

func (s *store[T]) forget(o T) {
	name := s.name(o)
	last, is := s.known[name]
	if !is {
		return
	}
	delete(s.known, name)
	s.remove(last)
}
