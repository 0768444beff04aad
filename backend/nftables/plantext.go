package nftables

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portolan/dataplane"
)

// PlanText returns the plan as a script for "nft -f": what Apply would write, in
// its order, and last what it would remove a little later.
func (b *Backend) PlanText(p dataplane.Plan) string {
	if p.Empty() {
		return ""
	}
	s := script{b: b, ids: scopeIDs{}}
	s.printf("add table %s\n", b.table)
	s.sets(p)
	s.chains(p)
	s.elements(p)
	s.removals(p)
	return s.text.String()
}

type script struct {
	b    *Backend
	text strings.Builder
	ids  scopeIDs
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.text, format, args...) }

func (s *script) sets(p dataplane.Plan) {
	for _, c := range p.Changes {
		if c.Container != setsContainer {
			continue
		}
		for _, o := range c.Created {
			kind, rest, _ := strings.Cut(o.Body, " ")
			s.printf("add %s %s %s\n", kind, s.b.table, rest)
		}
	}
}

func (s *script) chains(p dataplane.Plan) {
	var rules strings.Builder
	for _, c := range p.Changes {
		name, is := strings.CutPrefix(c.Container, chainPrefix)
		if !is || c.Remove {
			continue
		}
		lines := c.Lines
		hook := ""
		if len(lines) > 0 && strings.HasPrefix(lines[0].Body, "type ") {
			hook, lines = " { "+lines[0].Body+" }", lines[1:]
		}
		switch {
		case c.Exists && hook != "":
			s.printf("delete chain %s %s\n", s.b.table, name)
		case c.Exists:
			s.printf("flush chain %s %s\n", s.b.table, name)
		}
		if !c.Exists || hook != "" {
			s.printf("add chain %s %s%s\n", s.b.table, name, hook)
		}
		for _, o := range lines {
			fmt.Fprintf(&rules, "add rule %s %s %s\n", s.b.table, name, o.Body)
		}
	}
	s.text.WriteString(rules.String())
}

// elements prints them step by step, those of one set together.
func (s *script) elements(p dataplane.Plan) {
	u := update{b: s.b, late: newRemovals()}
	for _, c := range p.Changes {
		if !strings.HasPrefix(c.Container, chainPrefix) && c.Container != setsContainer {
			u.sortElements(c)
		}
	}
	for _, list := range u.steps {
		slices.SortStableFunc(list, func(a, b step) int { return strings.Compare(a.set, b.set) })
		for len(list) > 0 {
			n := 1
			for n < len(list) && list[n].set == list[0].set {
				n++
			}
			s.steps(list[:n])
			list = list[n:]
		}
	}
}

func (s *script) steps(list []step) {
	var gone, come []string
	set, shape := list[0].set, list[0].shape
	for _, one := range list {
		var old, now []string
		if one.old != nil {
			old = s.texts(shape, *one.old)
		}
		if one.new != nil {
			now = s.texts(shape, *one.new)
		}
		for _, t := range old {
			if !slices.Contains(now, t) {
				key, _, _ := strings.Cut(t, " : ")
				gone = append(gone, key)
			}
		}
		for _, t := range now {
			if !slices.Contains(old, t) {
				come = append(come, t)
			}
		}
	}
	s.list("delete", set, gone)
	s.list("add", set, come)
}

func (s *script) list(verb, set string, texts []string) {
	if len(texts) > 0 {
		s.printf("%s element %s %s {\n\t%s\n}\n", verb, s.b.table, set, strings.Join(texts, ",\n\t"))
	}
}

func (s *script) removals(p dataplane.Plan) {
	var chains, sets []string
	for _, c := range p.Changes {
		name, is := strings.CutPrefix(c.Container, chainPrefix)
		switch {
		case is && c.Remove:
			chains = append(chains, name)
		case c.Container == setsContainer:
			for _, o := range c.Deleted {
				kind, _, _ := strings.Cut(o.Body, " ")
				sets = append(sets, fmt.Sprintf("delete %s %s %s\n", kind, s.b.table, o.Key.Name))
			}
		}
	}
	before := s.text.Len()
	for _, c := range p.Changes {
		_, set, _ := strings.Cut(c.Container, "/")
		shape, ok := shapeOf(set)
		if !ok || !shape.isSlots() {
			continue
		}
		var keys []string
		for _, o := range c.Deleted {
			for _, t := range s.texts(shape, o) {
				key, _, _ := strings.Cut(t, " : ")
				keys = append(keys, key)
			}
		}
		s.list("delete", set, keys)
	}
	for _, verb := range []string{"flush", "delete"} {
		for _, name := range chains {
			s.printf("%s chain %s %s\n", verb, s.b.table, name)
		}
	}
	s.text.WriteString(strings.Join(sets, ""))
	if all := s.text.String(); len(all) > before {
		s.text.Reset()
		s.printf("%s# what follows is written %v later, in a transaction of its own\n%s", all[:before], removeAfter, all[before:])
	}
}

// texts are the elements of an object as nft writes them.
func (s *script) texts(shape shape, o dataplane.Object) []string {
	name, body := o.Key.Name, o.Body
	switch {
	case shape.isSlots():
		var out []string
		first, second, _ := strings.Cut(body, " | ")
		for i, list := range []string{first, second} {
			at := i * localSlots
			for e := range strings.SplitSeq(list, ", ") {
				if e == "" {
					continue
				}
				number, e := cutSlot(e)
				if n, err := strconv.Atoi(number); err == nil {
					at = n
				}
				out = append(out, fmt.Sprintf("%s . %d : %s", name, at, e))
				at++
			}
		}
		return out
	case shape.ranges:
		list := strings.Split(body, ", ")
		for i, r := range list {
			list[i] = name + " . " + r
		}
		return list
	case shape.key[0] == scope:
		return []string{s.scope(name) + ` comment "` + name + `"` + strings.TrimPrefix(body, name)}
	case shape.holds == aScope:
		key, scope, _ := strings.Cut(body, " : ")
		return []string{key + " : " + s.scope(scope)}
	}
	return []string{body}
}

// scope is the number of a scope as nft writes it.
func (s *script) scope(name string) string {
	id := s.ids.of(name)
	return fmt.Sprintf("%x:%x", id>>16, id&0xffff)
}
