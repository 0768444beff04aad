package iptables

import (
	"strings"

	"portolan/dataplane"
)

// turn is what a plan does to the translation of one address and port.
type turn uint8

const (
	goesOn turn = iota // or never was
	begins
	ends
)

// turns holds those that begin or end, by the name that their lines have in filter.
type turns map[string]turn

// turnsOf finds them. Where nat is written for the first time nothing is known to
// begin: no connection was served before.
func turnsOf(nat []dataplane.Change) turns {
	t := turns{}
	for _, c := range nat {
		if !translates(c.Container) {
			continue
		}
		if !c.Exists && (c.Container == natServices || c.Container == natNodePorts) {
			return turns{}
		}
		for _, o := range c.Created {
			t[filterName(o.Key)] = begins
		}
		for _, o := range c.Deleted {
			t[filterName(o.Key)] = ends
		}
		delete(t, "") // of lines whose owner is not known
	}
	return t
}

// translates tells whether the lines of a container in nat are about addresses and
// ports. Ways in trees are named so that no line in filter is called alike.
func translates(container string) bool {
	return container == natServices || container == natNodePorts ||
		strings.HasPrefix(container, addressLeaf) || strings.HasPrefix(container, portLeaf)
}

// filterName is the name in filter of the address that a line in nat translates.
func filterName(k dataplane.Key) string {
	name, _ := strings.CutSuffix(k.Name, nodePortAnywhere)
	return name
}

// twoSteps cuts the changes of filter into what is written before nat and what is
// written after. The lines of filter are about connections that nat leaves as they
// are. So where the translation of an address begins, its lines in filter change
// after nat, and where it ends, before: else a connection could be refused or
// dropped that was to be answered before and after. Elsewhere protection comes
// first and goes last: a source range that is taken away must not open the address.
func (t turns) twoSteps(filter []dataplane.Change) (first, last []dataplane.Change) {
	for _, c := range filter {
		before, after := t.split(c)
		switch {
		case !after:
			first = append(first, c)
		case !before:
			last = append(last, c)
		case c.Keyed:
			add, take := c, c
			add.Deleted, take.Created, take.Replaced = nil, nil, nil
			first, last = append(first, add), append(last, take)
		default:
			half := c
			half.Lines, half.Remove = t.between(c), false // ways may lead to it until after nat
			first, last = append(first, half), append(last, c)
		}
	}
	return first, last
}

// split tells whether something of a change is written before nat, and after.
func (t turns) split(c dataplane.Change) (before, after bool) {
	before, after = !c.Exists, c.Remove
	comes := func(k dataplane.Key) {
		if t[k.Name] == begins {
			after = true
		} else {
			before = true
		}
	}
	for _, o := range c.Created {
		comes(o.Key)
	}
	for _, r := range c.Replaced {
		comes(r.New.Key)
	}
	for _, o := range c.Deleted {
		if t[o.Key.Name] == ends {
			before = true
		} else {
			after = true
		}
	}
	return before, after
}

// between is the content of a chain while nat is written.
func (t turns) between(c dataplane.Change) []dataplane.Object {
	late := map[dataplane.Key]string{} // lines that come after nat, and what is there until then
	for _, o := range c.Created {
		if t[o.Key.Name] == begins {
			late[o.Key] = ""
		}
	}
	for _, r := range c.Replaced {
		if t[r.New.Key.Name] == begins {
			late[r.New.Key] = r.Old.Body
		}
	}
	var out []dataplane.Object
	for _, o := range c.Lines {
		if body, is := late[o.Key]; is {
			o.Body = body
		}
		if o.Body != "" {
			out = append(out, o)
		}
	}
	for _, o := range c.Deleted {
		if t[o.Key.Name] != ends {
			out = append(out, o)
		}
	}
	return out
}
