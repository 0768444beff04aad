package nfttext

import (
	"slices"

	"portolan/netfilter"
)

// remove reads flush, delete and destroy.
func (p *parser) remove(command token) error {
	what := p.next()
	if what.word("ruleset") {
		p.pos = p.ruleEnd()
		p.tables, p.order, p.chains = map[string]*table{}, nil, 0
		return nil
	}
	family, names, err := p.subject(what)
	if err != nil {
		return err
	}
	t := p.tables[family+" "+names[0]]
	if t == nil {
		p.pos = p.ruleEnd()
		return nil
	}
	return p.removeFrom(t, command, what, names)
}

// removeFrom carries out flush and delete for what is within a table.
func (p *parser) removeFrom(t *table, command, what token, names []string) error {
	flush := command.text == "flush"
	switch what.text {
	case "table":
		if flush {
			for _, c := range t.Chains() {
				c.Rules = nil
			}
			break
		}
		delete(p.tables, t.title)
		p.order = slices.DeleteFunc(p.order, func(x *table) bool { return x == t })
	case "chain":
		if c := t.Chain(names[1]); flush && c != nil {
			c.Rules = nil
		} else if !flush {
			t.RemoveChain(names[1])
		}
	case "set", "map", "meter":
		s := t.sets[names[1]]
		switch {
		case s == nil:
		case flush:
			s.Elements = nil
		default:
			delete(t.sets, names[1])
			t.Sets = slices.DeleteFunc(t.Sets, func(x *netfilter.NFTSet) bool { return x == s })
		}
	case "element":
		return p.removeElements(t, names[1])
	case "rule":
		return p.fail(what, "a rule that is deleted by its handle cannot be found in a text")
	}
	p.pos = p.ruleEnd()
	return nil
}

// removeElements takes elements out of a set.
func (p *parser) removeElements(t *table, name string) error {
	s := t.sets[name]
	open := p.next()
	if !open.is("{") {
		return p.fail(open, "%q where elements should begin", open.text)
	}
	if s == nil {
		p.skipBlock()
		return nil
	}
	gone := &netfilter.NFTSet{Name: s.Name, Key: s.Key, Data: s.Data}
	if err := p.elements(gone); err != nil {
		return err
	}
	has := map[string]bool{}
	for _, e := range gone.Elements {
		has[e.First+"\x00-\x00"+e.Last] = true
	}
	s.Elements = slices.DeleteFunc(s.Elements, func(e netfilter.Element) bool { return has[e.First+"\x00-\x00"+e.Last] })
	return nil
}
