package dataplane

import (
	"cmp"
	"slices"
	"time"
)

// Owner is who asks for objects. Of two owners that ask for one key with
// different bodies one wins: Base always, then the older Since, then the lesser
// Name.
type Owner struct {
	Name  string // empty for Base, which holds what no Service asks for
	Since time.Time
}

// Compare orders owners by precedence; the lesser wins.
func (o Owner) Compare(p Owner) int {
	if (o.Name == "") != (p.Name == "") {
		if o.Name == "" {
			return -1
		}
		return 1
	}
	return cmp.Or(o.Since.Compare(p.Since), cmp.Compare(o.Name, p.Name))
}

// Ranks of objects in a container that is shared with others, such as a built-in
// chain: they are added and removed one by one, each known by its Name, and the
// container itself is never removed.
const (
	Keyed = -1
	// Ensured objects are keyed, and asked for by other programs too: they are
	// added when they are missing and never removed.
	Ensured = -2
)

// Key identifies an object. Objects of one container are written in the order
// of Rank, then Name.
type Key struct {
	// Container is what is written as a whole, for example "nat/KUBE-SERVICES".
	Container string
	// Rank orders objects within the container: Keyed, Ensured, or from 0 up.
	Rank int
	// Name is what owners contend for. It is unique per container and rank.
	Name string
}

// Compare orders keys by container, rank, name.
func (k Key) Compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Container, o.Container), cmp.Compare(k.Rank, o.Rank), cmp.Compare(k.Name, o.Name))
}

// Object is one thing in the kernel. An empty Body is a claim: it writes
// nothing, but no lesser owner gets the key. A Service that answers for an address
// in one container claims the address in the others, so that an address is one
// owner's everywhere. A claim without a Name, and any in a keyed container, has the
// container exist.
type Object struct {
	Key  Key
	Body string
}

// present tells whether objects make their container exist.
func present(objects []Object) bool {
	return slices.ContainsFunc(objects, func(o Object) bool { return o.Body != "" || o.Key.Name == "" || o.Key.Rank < 0 })
}

// normal returns objects sorted by key, the first of each key only. The input
// is not changed, and returned as it is when nothing had to be done.
func normal(objects []Object) []Object {
	ok := true
	for i := 1; i < len(objects) && ok; i++ {
		ok = objects[i-1].Key.Compare(objects[i].Key) < 0
	}
	if ok {
		return objects
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b Object) int { return a.Key.Compare(b.Key) })
	return slices.CompactFunc(objects, func(a, b Object) bool { return a.Key == b.Key })
}
