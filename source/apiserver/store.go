package apiserver

import (
	"fmt"
	"hash/maphash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"portolan/service"
)

// object is a pointer to an API object.
type object interface {
	comparable
	metav1.Object
}

// kept is what is kept of an object: a form of it, which is the kube.Cluster's own,
// and which version that is, as hashOf has it.
type kept[F any] struct {
	version uint64
	form    F
}

var hashSeed = maphash.MakeSeed()

// hashOf stands for the UID and the version of an object. Their texts would take more
// memory than all else that a store has.
func hashOf(o metav1.Object) uint64 {
	return maphash.Comparable(hashSeed, [2]string{string(o.GetUID()), o.GetResourceVersion()})
}

// item is an object from when the API server told it until it has its place: in the
// form in which it is kept, since a list is in memory as a whole until it is
// complete, and the API's form of it is several times as large.
type item[F any] struct {
	name service.Name
	kept[F]
}

// store is where a reflector puts what it hears of one resource. It remembers which
// objects there are, to notice after an outage which have gone.
type store[T object, F any] struct {
	source *Source
	form   func(T) F
	put    func(old, now F) // old is the zero value for a new object
	remove func(name service.Name, last F)
	synced func(first bool, count int) // after each full list

	known map[service.Name]kept[F]
	full  bool // a full list has been seen
}

func newStore[T object, F any](s *Source, form func(T) F, put func(old, now F), remove func(service.Name, F), synced func(bool, int)) *store[T, F] {
	return &store[T, F]{source: s, form: form, put: put, remove: remove, synced: synced, known: map[service.Name]kept[F]{}}
}

func nameIn(o metav1.Object) service.Name {
	return service.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Transformer has the reflector collect a list in the form in which it is kept.
func (s *store[T, F]) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return s.reduce(o) }
}

// reduce brings an object into the form in which it is kept, unless it is in that
// already.
func (s *store[T, F]) reduce(o any) (item[F], error) {
	switch o := o.(type) {
	case item[F]:
		return o, nil
	case T:
		return item[F]{nameIn(o), kept[F]{hashOf(o), s.form(o)}}, nil
	}
	var want T
	return item[F]{}, fmt.Errorf("apiserver: %T among %T", o, want)
}

// Add takes a new object, or a newer form of one.
func (s *store[T, F]) Add(o any) error {
	now, err := s.reduce(o)
	if err != nil {
		return err
	}
	return s.source.change(func() error {
		s.place(now)
		return nil
	})
}

// Update does the same as Add.
func (s *store[T, F]) Update(o any) error { return s.Add(o) }

// Delete takes the last form of an object that is gone.
func (s *store[T, F]) Delete(o any) error {
	t, is := o.(T)
	if !is {
		return fmt.Errorf("apiserver: %T among %T", o, t)
	}
	return s.source.change(func() error {
		s.forget(nameIn(t))
		return nil
	})
}

// Replace takes everything there is; a version that is known already is no change.
func (s *store[T, F]) Replace(list []any, _ string) error {
	return s.source.change(func() error {
		there := make(map[service.Name]bool, len(list))
		for i, o := range list {
			now, err := s.reduce(o)
			if err != nil {
				return err
			}
			there[now.name] = true
			s.place(now)
			list[i] = nil // it has its place
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
func (s *store[T, F]) Resync() error { return nil }

func (s *store[T, F]) place(o item[F]) {
	old := s.known[o.name]
	if old.version == o.version {
		return
	}
	s.known[o.name] = o.kept
	s.put(old.form, o.form)
}

func (s *store[T, F]) forget(name service.Name) {
	last, is := s.known[name]
	if !is {
		return
	}
	delete(s.known, name)
	s.remove(name, last.form)
}
