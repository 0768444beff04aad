package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// comparison is a walk through an observation: what is there against what is
// wanted, one container in memory at a time.
type comparison struct {
	want    *Want
	held    func(string) bool
	adopt   bool             // see adopted
	seen    map[string]sight // containers
	current string
	lines   []Object // of the current container
	plan    Plan
}

// sight is what is known of an observed container.
type sight uint8

const (
	wholeSeen sight = iota + 1 // by its claim
	keyedSeen
	compared
)

// observe compares everything the kernel holds with everything wanted.
func observe(ctx context.Context, k Kernel, w *Want, held func(string) bool, adopt bool) (Plan, error) {
	c := comparison{want: w, held: held, adopt: adopt, seen: map[string]sight{}}
	for o, err := range k.Observe(ctx) {
		if err != nil {
			return Plan{}, fmt.Errorf("dataplane: observe: %w", err)
		}
		c.see(o)
	}
	c.finish()
	c.rest(func(string) bool { return true })
	return c.sorted(), nil
}

// see takes the next object of an observation, which comes container by container.
func (c *comparison) see(o Object) {
	if o.Key.Container != c.current {
		c.finish()
		c.current = o.Key.Container
	}
	if isClaim(o) {
		c.noteClaim(o.Key)
		return
	}
	c.lines = append(c.lines, o)
}

func (c *comparison) sorted() Plan {
	slices.SortFunc(c.plan.Changes, func(a, b Change) int { return cmp.Compare(a.Container, b.Container) })
	return c.plan
}

func (c *comparison) noteClaim(k Key) {
	switch {
	case c.seen[k.Container] != 0:
	case k.Rank < 0:
		c.seen[k.Container] = keyedSeen
	default:
		c.seen[k.Container] = wholeSeen
	}
}

// finish compares the container whose lines were just seen.
func (c *comparison) finish() {
	if len(c.lines) > 0 && c.seen[c.current] != compared {
		c.compare(c.current, true, c.lines)
	}
	clear(c.lines)
	c.lines = c.lines[:0]
}

// rest compares the containers without lines, and those that are not there as far
// as that is known.
func (c *comparison) rest(known func(container string) bool) {
	var names []string
	for name, how := range c.seen {
		if how != compared {
			names = append(names, name)
		}
	}
	for name := range c.want.containers {
		if c.seen[name] == 0 && known(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names) // so that the plan comes out almost sorted
	c.plan.Changes = slices.Grow(c.plan.Changes, len(names))
	for _, name := range names {
		c.compare(name, c.seen[name] != 0, nil)
	}
}

// compare notes the change of one container, if what was seen is not what is wanted.
func (c *comparison) compare(name string, exists bool, seen []Object) {
	keyed := c.seen[name] == keyedSeen || isKeyed(seen)
	if exists { // the others are asked for once, and at first they are very many
		c.seen[name] = compared
	}
	wanted, leave := c.wanted(name, seen)
	if leave || !exists && !present(wanted) {
		return
	}
	if keyed || isKeyed(wanted) {
		slices.SortStableFunc(seen, func(a, b Object) int { return a.Key.Compare(b.Key) })
		seen = slices.CompactFunc(seen, func(a, b Object) bool { return a.Key == b.Key })
		ch, _ := changeOf(name, seen, wanted)
		ch.Keyed, ch.Remove, ch.Exists = true, false, exists
		ch.Deleted = slices.Clone(ch.Deleted)
		if !exists || len(ch.Created)+len(ch.Replaced)+len(ch.Deleted) > 0 {
			c.plan.Changes = append(c.plan.Changes, ch)
		}
		return
	}
	ch := Change{Container: name, Exists: exists, Remove: !present(wanted), Lines: lines(wanted)}
	sameBody := func(a, b Object) bool { return a.Body == b.Body }
	if exists && !ch.Remove && slices.EqualFunc(seen, ch.Lines, sameBody) {
		return
	}
	ch.Created, ch.Deleted = differenceOf(seen, ch.Lines)
	c.plan.Changes = append(c.plan.Changes, ch)
}

// wanted returns what a container is to hold, or that it is to be left alone.
func (c *comparison) wanted(name string, seen []Object) (wanted []Object, leave bool) {
	cont := c.want.containers[name]
	switch {
	case c.adopt:
		return c.want.adopted(cont, c.held, seen)
	case cont != nil:
		// What is written one by one needs no order where there is nothing yet.
		ordered := len(seen) > 0 || !isKeyed(cont.parts.sole.objects())
		var conflict bool
		wanted, conflict = c.want.resolve(cont, cont.wanted(c.held), ordered)
		if !conflict && c.want.conflicts[name] == nil && !cont.anyHeld(c.held) {
			c.want.trust(cont) // no need to look a second time
		}
	}
	return wanted, false
}

// adopted is what a container is to hold while owners are held back of whom it
// is not known what the kernel has, after a start: what it has stays, as far as
// it is still asked for. Containers that only they ask for, and such that nobody
// asks for but their chains may lead to, are left alone.
func (w *Want) adopted(c *container, held func(string) bool, seen []Object) (wanted []Object, leave bool) {
	if c == nil {
		return nil, true
	}
	free := func(owner string, now part) part {
		if held(owner) {
			return part{}
		}
		return now
	}
	others := w.compose(c, free)
	if !present(others) {
		return nil, true
	}
	there := make(map[string]bool, len(seen))
	for _, o := range seen {
		there[o.Body] = true
	}
	everything := w.compose(c, all)
	for _, o := range everything {
		i, ok := slices.BinarySearchFunc(others, o.Key, func(o Object, k Key) int { return o.Key.Compare(k) })
		if there[o.Body] || (ok && others[i] == o) {
			wanted = append(wanted, o)
		}
	}
	return wanted, false
}

// differenceOf returns what b has more than a, and a more than b, by body.
func differenceOf(a, b []Object) (more, less []Object) {
	if len(a) == 0 {
		return b, nil
	}
	count := make(map[string]int, len(a))
	for _, o := range a {
		count[o.Body]++
	}
	for _, o := range b {
		if count[o.Body] > 0 {
			count[o.Body]--
		} else {
			more = append(more, o)
		}
	}
	for _, o := range slices.Backward(a) {
		if count[o.Body] > 0 {
			count[o.Body]--
			less = append(less, o)
		}
	}
	slices.Reverse(less)
	return more, less
}
