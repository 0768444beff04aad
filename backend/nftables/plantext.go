package nftables

import (
	"fmt"
	"maps"
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
	s := script{b: b, ids: newNumbers()}
	s.printf("add table %s\n", b.table)
	s.sets(p)
	s.chains(p)
	s.removals(p, s.elements(p))
	return s.text.String()
}

// script is a plan as text for nft, while it is written.
type script struct {
	b    *Backend
	text strings.Builder
	ids  numbers
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.text, format, args...) }

// sets prints the sets that come.
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

// chains prints all chains before any rule, since rules lead from one to another.
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

// elements prints them step by step, those of one set together, and returns those
// that go later.
func (s *script) elements(p dataplane.Plan) map[atomID]string {
	u := update{b: s.b, late: newWaiting(), fresh: true}
	u.closes = u.closesNow(p)
	for _, c := range p.Changes {
		if !strings.HasPrefix(c.Container, chainPrefix) && c.Container != setsContainer {
			u.sortElements(c)
		}
	}
	for _, list := range slices.Concat(u.steps[stageProtect][:], u.steps[stageServe][:], u.steps[stageLast][:]) {
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
	return u.late.atoms
}

// steps prints what goes and what comes in one set: of what only changes, what differs.
func (s *script) steps(list []step) {
	var gone, come []string
	for _, one := range list {
		var old, now []string
		if one.goes {
			old = s.texts(one.shape, one.key.Name, one.old)
		}
		if one.come {
			now = s.texts(one.shape, one.key.Name, one.new)
		}
		for _, t := range old {
			if !slices.Contains(now, t) {
				gone = append(gone, keyOfText(t))
			}
		}
		for _, t := range now {
			if !slices.Contains(old, t) {
				come = append(come, t)
			}
		}
	}
	s.list("delete", list[0].set, gone)
	s.list("add", list[0].set, come)
}

// keyOfText is an element without its data.
func keyOfText(t string) string {
	key, _, _ := strings.Cut(t, " : ")
	key, _, _ = strings.Cut(key, " comment ")
	return key
}

func (s *script) list(verb, set string, texts []string) {
	if len(texts) > 0 {
		s.printf("%s element %s %s {\n\t%s\n}\n", verb, s.b.table, set, strings.Join(texts, ",\n\t"))
	}
}

// removals prints what Apply leaves for later, in the order of removeObjects.
func (s *script) removals(p dataplane.Plan, late map[atomID]string) {
	var chains, sets []string
	gone := map[string]bool{}
	for _, c := range p.Changes {
		name, is := strings.CutPrefix(c.Container, chainPrefix)
		switch {
		case is && c.Remove:
			chains = append(chains, name)
		case c.Container == setsContainer:
			for _, o := range c.Deleted {
				kind, _, _ := strings.Cut(o.Body, " ")
				sets = append(sets, fmt.Sprintf("delete %s %s %s\n", kind, s.b.table, o.Key.Name))
				gone[o.Key.Name] = true
			}
		}
	}
	before := s.text.Len()
	keys := map[string][]string{}
	for id, data := range late {
		if gone[id.set] && !leadsByNumber(id.set) {
			continue // with the map
		}
		shape, _ := shapeOf(id.set)
		for _, t := range s.texts(shape, id.name, data) {
			keys[id.set] = append(keys[id.set], keyOfText(t))
		}
	}
	for _, set := range slices.Sorted(maps.Keys(keys)) {
		slices.Sort(keys[set])
		s.list("delete", set, keys[set])
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

// texts are the elements of an atom as nft writes them.
func (s *script) texts(shape *shape, name, data string) []string {
	switch {
	case shape.isSlots():
		return slotTexts(name, data)
	case shape.ranges:
		list := strings.Split(data, ", ")
		for i, r := range list {
			list[i] = name + " . " + r
		}
		return list
	case shape.key[0] == number:
		return []string{strings.TrimSuffix(s.number(name)+` comment "`+name+`" : `+data, " : ")}
	case shape.holds == aChain:
		return []string{name + " : " + s.number(strings.TrimPrefix(data, "goto "))}
	case shape.holds == aScope:
		return []string{name + " : " + s.number(data)}
	case data != "":
		return []string{name + " : " + data}
	}
	return []string{name}
}

// slotTexts are the endpoints of a frontend with their slots.
func slotTexts(name, data string) (out []string) {
	first, second, _ := strings.Cut(data, " | ")
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
}

// number is the number of a chain or scope. Where there is none left nft refuses what
// stands for it.
func (s *script) number(name string) string {
	id, err := s.ids.of(name)
	if err != nil {
		return "no-number-left"
	}
	return classID(id)
}

// classID writes a number as nft does.
func classID(id uint32) string { return fmt.Sprintf("%x:%x", id>>16, id&0xffff) }
