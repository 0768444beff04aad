package dataplane

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
)

// Containers of many owners have an index from key to who asks for it, so that
// the cost of a change follows the change and not the owners. Tests lower these.
var (
	// indexFrom is how many owners a container has that gets an index.
	indexFrom = 16
	// indexShare is how many owners there must be for each that changed: with
	// fewer it is as fast to look at all.
	indexShare = 4
)

// index counts who asks for each key, by a hash of the key. Two keys with one
// hash make a question slower and not wrong.
type index struct {
	seed maphash.Seed
	keys map[uint64]asked
}

// asked is about the wanted parts: how many have a key, and one of these. All ask for
// what that one does; it is nil when this is not known. It is any of them and not the
// one with precedence: of the many that share a chain, that one may be the next to
// change, again and again where Services change in the order of their age.
type asked struct {
	some *holding
	n    int32
}

func newIndex(c *container) *index {
	x := &index{seed: maphash.MakeSeed(), keys: make(map[uint64]asked, c.parts.len())}
	c.parts.each(func(p part) { x.exchange(part{}, p) })
	return x
}

func (x *index) hash(k Key) uint64 { return hashInContainer(x.seed, k) }

func hashInContainer(seed maphash.Seed, k Key) uint64 {
	return maphash.String(seed, k.Name) ^ uint64(k.Rank)*0x9e3779b97f4a7c15
}

// exchange puts now in the place of old, both of one owner. It tells whether the
// owner may ask for a key otherwise than somebody else does.
func (x *index) exchange(old, now part) (contends bool) {
	a, b := old.objects(), now.objects()
	for len(a) > 0 || len(b) > 0 {
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = compareInContainer(a[0].Key, b[0].Key)
		}
		switch {
		case order < 0:
			x.gone(a[0].Key, old.of)
			a = a[1:]
		case order > 0:
			contends = x.come(b[0], now.of) || contends
			b = b[1:]
		default:
			contends = x.stay(a[0], b[0], old.of, now.of) || contends
			a, b = a[1:], b[1:]
		}
	}
	return contends
}

// gone takes an owner off those who ask for a key.
func (x *index) gone(k Key, old *holding) {
	h := x.hash(k)
	e := x.keys[h]
	e.n--
	if e.some == old {
		e.some = nil
	}
	if e.n == 0 {
		delete(x.keys, h)
		return
	}
	x.keys[h] = e
}

// come adds an owner to those who ask for a key.
func (x *index) come(o Object, now *holding) (contends bool) {
	h := x.hash(o.Key)
	e := x.keys[h]
	e.n++
	switch {
	case e.n == 1:
		e.some = now
	case e.some == nil || e.some.bodyOf(o.Key) != o.Body:
		e.some, contends = nil, true
	}
	x.keys[h] = e
	return contends
}

// stay has an owner ask for a key as before, or for another body. Contends: somebody else
// asks for it too, and what wins may be another.
func (x *index) stay(was, is Object, old, now *holding) (contends bool) {
	h := x.hash(is.Key)
	e := x.keys[h]
	contends = e.n > 1 && (was.Body != is.Body || old.owner.Compare(now.owner) != 0)
	switch {
	case e.n == 1, e.some == old && was.Body == is.Body:
		e.some = now
	case e.some == old, e.some != nil && e.some.bodyOf(is.Key) != is.Body:
		e.some = nil
	}
	x.keys[h] = e
	return contends
}

// bodyOf returns what a holding asks for under a key, empty when it does not.
func (h *holding) bodyOf(k Key) string {
	i, found := slices.BinarySearchFunc(h.objects, k, func(o Object, k Key) int { return o.Key.Compare(k) })
	if !found {
		return ""
	}
	return h.objects[i].Body
}

// compareInContainer is the order of keys that are known to be of one container.
func compareInContainer(a, b Key) int {
	if a.Rank != b.Rank {
		return cmp.Compare(a.Rank, b.Rank)
	}
	return strings.Compare(a.Name, b.Name)
}

// indexed tells whether the index is worth asking, and makes it when it is for the
// first time. Then some owner did not change, so that the container is there before
// and after.
func (c *container) indexed() bool {
	if c.fresh || c.parts.len() < indexFrom || c.before.len()*indexShare >= c.parts.len() {
		return false
	}
	c.makeIndex()
	return true
}

func (c *container) makeIndex() {
	if c.index == nil {
		c.index = newIndex(c)
	}
}

// prepare makes the indexes of all containers that will have one.
func (w *Want) prepare() {
	for _, c := range w.containers {
		if !c.fresh && c.parts.len() >= indexFrom {
			c.makeIndex()
		}
	}
}

// changedOf computes the change of a container from the keys that changed owners
// have or had. It is false when only a look at all parts can tell: a container
// that is written as a whole is needed as a whole.
func (w *Want) changedOf(c *container, held func(string) bool) (ch Change, differs, known bool) {
	var before, after, current []claim
	add := func(list *[]claim, p part) {
		objects := p.objects()
		for i := range objects {
			*list = append(*list, claim{&objects[i], &p.of.owner})
		}
	}
	someHeld := false
	c.before.each(func(owner string, p part) {
		now := w.partOf(owner, c)
		add(&before, p)
		add(&current, now)
		if held(owner) {
			add(&after, p)
			someHeld = true
		} else {
			add(&after, now)
		}
	})
	for _, list := range [][]claim{before, after, current} {
		slices.SortFunc(list, compareClaims)
	}
	if !someHeld {
		after = current
	}
	ch = Change{Container: c.name, Exists: true}
	for len(before) > 0 || len(after) > 0 {
		k := lesserKey(before, after)
		var old, now claim
		old, before = takeKey(before, k)
		now, after = takeKey(after, k)
		var changed int
		changed, current = countKey(current, k)
		if old.object != nil && now.object != nil && old.object.Body == now.object.Body && *old.owner == *now.owner {
			continue
		}
		if stays, there := w.stable(c, k, changed, old, now); there {
			old, now = better(old, stays), better(now, stays)
		}
		if holds(old.object) != holds(now.object) {
			return Change{}, false, false
		}
		ch.note(old.object, now.object)
	}
	differs = len(ch.Created)+len(ch.Replaced)+len(ch.Deleted) > 0
	ch.Keyed = isKeyed(ch.Created) || isKeyed(ch.Deleted) || (len(ch.Replaced) > 0 && ch.Replaced[0].New.Key.Rank < 0)
	return ch, differs, ch.Keyed || !differs
}

// holds tells that an object is a claim by which a container exists.
func holds(o *Object) bool { return o != nil && isClaim(*o) && o.Key.Name == "" }

// compareClaims sorts by key, and the winner of each first.
func compareClaims(a, b claim) int {
	return cmp.Or(compareInContainer(a.object.Key, b.object.Key), a.owner.Compare(*b.owner))
}

// lesserKey is the first key of two sorted lists, of which one may be empty.
func lesserKey(a, b []claim) Key {
	switch {
	case len(a) == 0:
		return b[0].object.Key
	case len(b) == 0 || compareInContainer(a[0].object.Key, b[0].object.Key) < 0:
		return a[0].object.Key
	}
	return b[0].object.Key
}

// takeKey returns the first claim of a key, if any, and what comes after the key.
func takeKey(list []claim, k Key) (first claim, rest []claim) {
	if len(list) > 0 && list[0].object.Key == k {
		first = list[0]
	}
	_, rest = countKey(list, k)
	return first, rest
}

// countKey counts the claims of a key, passing over lesser keys.
func countKey(list []claim, k Key) (n int, rest []claim) {
	for len(list) > 0 {
		order := compareInContainer(list[0].object.Key, k)
		if order > 0 {
			break
		}
		if order == 0 {
			n++
		}
		list = list[1:]
	}
	return n, list
}

// better is the claim that wins; the first may be nobody's.
func better(a, b claim) claim {
	if a.object == nil || b.owner.Compare(*a.owner) < 0 {
		return b
	}
	return a
}

// stable finds the best claim of a key among the owners that did not change; of
// those that did, so many ask for it, the best of them for old before and now after.
// Where all ask for the same, any claim is as good as the best.
func (w *Want) stable(c *container, k Key, changed int, old, now claim) (claim, bool) {
	h := c.index.hash(k)
	e := c.index.keys[h]
	if int(e.n) <= changed {
		return claim{}, false
	}
	if e.some != nil {
		name := e.some.owner.Name
		if _, changes := c.before.get(name); !changes {
			if p := w.partOf(name, c); !p.empty() {
				if o := p.find(k); o != nil && old.nothingElse(o.Body) && now.nothingElse(o.Body) {
					return claim{o, &p.of.owner}, true
				}
			}
		}
	}
	best, some := c.search(k)
	if e.some = some; some != nil || best.object != nil {
		c.index.keys[h] = e
	}
	return best, best.object != nil
}

// nothingElse tells whether it is no claim to anything but body.
func (c claim) nothingElse(body string) bool { return c.object == nil || c.object.Body == body }

// search looks at all parts for the best claim of a key among the owners that did not
// change, and for one of these with which all who ask for the key now agree.
func (c *container) search(k Key) (best claim, some *holding) {
	agreed := true
	body := ""
	seen := false
	c.parts.each(func(p part) {
		o := p.find(k)
		if o == nil {
			return
		}
		agreed = agreed && (!seen || body == o.Body)
		body, seen = o.Body, true
		if _, changes := c.before.get(p.of.owner.Name); !changes {
			best, some = better(best, claim{o, &p.of.owner}), p.of
		}
	})
	if !agreed {
		some = nil
	}
	return best, some
}

func (p part) find(k Key) *Object {
	objects := p.objects()
	i, found := slices.BinarySearchFunc(objects, k, func(o Object, k Key) int { return compareInContainer(o.Key, k) })
	if !found {
		return nil
	}
	return &objects[i]
}

// note adds what happens to one key. A claim writes nothing.
func (ch *Change) note(old, now *Object) {
	was, is := old != nil && !isClaim(*old), now != nil && !isClaim(*now)
	switch {
	case was && !is && old.Key.Rank != Ensured:
		ch.Deleted = append(ch.Deleted, *old)
	case is && !was:
		ch.Created = append(ch.Created, *now)
	case is && old.Body != now.Body:
		ch.Replaced = append(ch.Replaced, Replacement{*old, *now})
	}
}
