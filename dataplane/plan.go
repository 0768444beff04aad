package dataplane

import (
	"slices"
	"strings"
)

// Plan is what has to be written to make the kernel hold what is wanted. It
// says nothing about containers that stay as they are.
type Plan struct {
	Changes []Change // sorted by container
}

// Change is what happens to one container.
type Change struct {
	Container string
	// Keyed: the container is shared, only Created, Replaced and Deleted are
	// written. Otherwise it is written as a whole, from Lines.
	Keyed bool
	// Exists tells whether the kernel is believed to have the container, Remove
	// whether it is to go. A keyed container never goes.
	Exists, Remove bool
	// Lines is the complete wanted content in key order, without claims. A keyed
	// container may come without.
	Lines []Object

	Created  []Object
	Replaced []Replacement
	// Deleted are gone from the container. Those of a Plan that comes from an
	// observation of a container written as a whole carry their place as Rank.
	Deleted []Object
}

// Replacement is one key whose body changes.
type Replacement struct{ Old, New Object }

// Empty tells whether there is nothing to write.
func (p Plan) Empty() bool { return len(p.Changes) == 0 }

// String prints the plan as a difference: one container a paragraph, "+" for
// what comes, "-" for what goes.
func (p Plan) String() string {
	var b strings.Builder
	for _, c := range p.Changes {
		sign := "~ "
		switch {
		case c.Remove:
			sign = "- "
		case !c.Exists:
			sign = "+ "
		}
		b.WriteString(sign)
		b.WriteString(c.Container)
		b.WriteByte('\n')
		for _, o := range c.Deleted {
			writeLine(&b, "  - ", o)
		}
		for _, r := range c.Replaced {
			writeLine(&b, "  - ", r.Old)
			writeLine(&b, "  + ", r.New)
		}
		for _, o := range c.Created {
			writeLine(&b, "  + ", o)
		}
	}
	return b.String()
}

func writeLine(b *strings.Builder, sign string, o Object) {
	b.WriteString(sign)
	b.WriteString(o.Body)
	b.WriteByte('\n')
}

// Plan returns what has to be written for the owners that are not held back,
// going by what the kernel is believed to hold.
func (w *Want) Plan(held func(owner string) bool) Plan {
	var p Plan
	for _, c := range slices.SortedFunc(w.allDirty(), func(a, b *container) int { return strings.Compare(a.name, b.name) }) {
		if c.indexed() {
			if ch, differs, known := w.changedOf(c, held); known {
				if differs {
					p.Changes = append(p.Changes, ch)
				}
				continue
			}
		}
		before := w.compose(c, c.believed)
		after := w.compose(c, c.wanted(held))
		if ch, differs := changeOf(c.name, before, after); differs {
			p.Changes = append(p.Changes, ch)
		}
	}
	return p
}

// changeOf walks two sorted lists and notes what comes, goes and differs. Claims tell
// whether a container is there, and are no content.
func changeOf(name string, before, after []Object) (Change, bool) {
	ch := Change{Container: name, Exists: present(before), Remove: !present(after), Lines: lines(after)}
	ch.Keyed = isKeyed(before) || isKeyed(after)
	if ch.Keyed {
		ch.Remove = false
	}
	old := lines(before)
	switch {
	case !ch.Exists:
		ch.Created = ch.Lines
		return ch, !ch.Remove
	case len(old) == 0:
		ch.Created = ch.Lines
		return ch, ch.Remove || len(ch.Created) > 0
	}
	i, j := 0, 0
	for i < len(old) || j < len(ch.Lines) {
		order := 0
		switch {
		case i == len(old):
			order = 1
		case j == len(ch.Lines):
			order = -1
		default:
			order = old[i].Key.Compare(ch.Lines[j].Key)
		}
		switch {
		case order < 0:
			if old[i].Key.Rank != Ensured {
				ch.Deleted = append(ch.Deleted, old[i])
			}
			i++
		case order > 0:
			ch.Created = append(ch.Created, ch.Lines[j])
			j++
		default:
			if old[i].Body != ch.Lines[j].Body {
				ch.Replaced = append(ch.Replaced, Replacement{old[i], ch.Lines[j]})
			}
			i, j = i+1, j+1
		}
	}
	return ch, ch.Remove || len(ch.Created)+len(ch.Replaced)+len(ch.Deleted) > 0
}

// isKeyed tells a container of keyed objects: all have the rank Keyed, which is negative.
func isKeyed(objects []Object) bool { return len(objects) > 0 && objects[0].Key.Rank < 0 }

// lines leaves the claims out.
func lines(objects []Object) []Object {
	if !slices.ContainsFunc(objects, isClaim) {
		return objects
	}
	out := make([]Object, 0, len(objects))
	for _, o := range objects {
		if !isClaim(o) {
			out = append(out, o)
		}
	}
	return out
}

func isClaim(o Object) bool { return o.Body == "" }
