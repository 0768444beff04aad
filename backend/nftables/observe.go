package nftables

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// Observe streams what is in our table: chains with rules, sets, and then the
// elements of one set after the other. What waits to be removed counts as gone, and
// what waits to come as there.
// A table of another layout is not there: the plan that follows replaces it.
func (b *Backend) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		failed := false
		defer func() {
			if failed {
				b.hearAgain()
			}
		}()
		b.mu.Lock()
		defer b.mu.Unlock()
		o := observation{b: b, yield: yield, late: newWaiting()}
		before := b.ids
		if err := o.run(); err != nil {
			failed, b.ids = true, before // what waits is to be removed by its numbers
			yield(dataplane.Object{}, fmt.Errorf("nftables: observe: %w", err))
			return
		}
		if !o.stopped {
			b.late.keepSeen(o.late)
			b.fresh = true
		}
	}
}

// observation is one look at the table.
type observation struct {
	b       *Backend
	yield   func(dataplane.Object, error) bool
	late    waiting // what was seen of those that wait
	found   collection
	stopped bool
}

// give tells whether to go on.
func (o *observation) give(container string, rank int, name, body string) bool {
	if !o.stopped {
		o.stopped = !o.yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: rank, Name: name}, Body: body}, nil)
	}
	return !o.stopped
}

// run reads the whole table. A table that will be replaced, since it is of another layout
// or no packet meets it, is not read, and nothing is said to be there.
func (o *observation) run() error {
	b := o.b
	b.ids, b.scoped = newNumbers(), nil
	b.observes()
	there, err := b.options.Conn.HasTable(b.table)
	if err != nil {
		return err
	}
	if !there {
		b.rebuild = false
		b.late.nothingCloses()
		return nil
	}
	dormant, err := b.options.Conn.IsDormant(b.table)
	if err != nil {
		return err
	}
	chains, err := b.options.Conn.Chains(b.table)
	if err != nil {
		return err
	}
	b.rebuild = b.replace || dormant || !slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Name == layoutChain(layout) })
	if b.rebuild {
		return nil
	}
	if err := o.chains(chains); err != nil {
		return err
	}
	return o.sets()
}

// chains yields every chain with its rules, but for those that only wait to be removed.
func (o *observation) chains(chains []nft.Chain) error {
	rules, err := o.b.options.Conn.Rules(o.b.table)
	if err != nil {
		return err
	}
	byChain := map[string][]string{}
	for _, r := range rules {
		byChain[r.Chain] = append(byChain[r.Chain], o.b.words.ruleText(r))
	}
	for _, c := range chains {
		if o.b.late.chain(c.Name) {
			o.late.chains[c.Name] = true
			continue
		}
		lines := byChain[c.Name]
		if c.Type != "" {
			lines = append([]string{hookText(c)}, lines...)
		}
		o.give(chainPrefix+c.Name, 0, "", "")
		for i, text := range lines {
			o.give(chainPrefix+c.Name, i, "", text)
		}
	}
	return nil
}

// sets yields the declarations of all sets, and what the elements of ours say, gathered
// by what they are about.
func (o *observation) sets() error {
	sets, err := o.b.options.Conn.Sets(o.b.table)
	if err != nil {
		return err
	}
	o.give(setsContainer, dataplane.Keyed, "", "")
	var ours []string
	for _, set := range sets {
		s, known := shapeOf(set.Name)
		body := "(not ours)"
		if known && sameSet(set, o.b.words.setOf(set.Name, s)) {
			body = o.b.words.setBody(set.Name, s)
			ours = append(ours, set.Name)
		}
		if o.b.late.set(set.Name) {
			o.late.sets[set.Name] = true
			continue
		}
		o.give(setsContainer, dataplane.Keyed, set.Name, body)
	}
	// What has names comes first, since others hold only their numbers.
	slices.SortStableFunc(ours, func(x, y string) int { return rankOf(x) - rankOf(y) })
	entries := map[string]*entry{}
	for _, name := range ours {
		if o.stopped {
			return nil
		}
		if err := o.elements(name, entries); err != nil {
			return err
		}
	}
	if err := o.strays(ours, entries); err != nil {
		return err
	}
	o.give(frontends, dataplane.Keyed, "", "")
	for name, e := range entries {
		if e.empty() {
			continue
		}
		if name, body := e.object(name); !o.give(frontends, dataplane.Keyed, name, body) {
			return nil
		}
	}
	return nil
}

// rankOf is when a set is read: what gives numbers their names before what holds numbers.
func rankOf(set string) int {
	switch {
	case leadsByNumber(set):
		return 0
	case set == affinityScopes: // named with the chains that learn
		return 1
	}
	return 2
}

// elements gives the objects of a set, or notes in entries what is about
// frontends.
func (o *observation) elements(set string, entries map[string]*entry) error {
	s, _ := shapeOf(set)
	if s.dynamic > 0 {
		return nil
	}
	ofFrontends := s.ofFrontends(set)
	if !ofFrontends {
		o.give(s.container(set), dataplane.Keyed, "", "")
	}
	closing := map[string]bool{}
	if set == clusterIPs {
		for _, w := range o.b.late.both() {
			maps.Copy(closing, w.closed)
		}
	}
	found := &o.found
	if err := o.b.options.Conn.Elements(o.b.table, set, found.reset, found.add); err != nil {
		return err
	}
	length := o.b.words.keyLength(s)
	if slices.ContainsFunc(found.list, func(p place) bool { return int(p.key) != length }) {
		o.b.replace = true
		return fmt.Errorf("set %s has an element for all other keys, which others put there; the table will be replaced", set)
	}
	for name, body := range o.b.objectsOf(s, found) {
		data := dataOf(name, body)
		id := atomID{set, name}
		if _, late := o.b.late.atom(id); late {
			o.late.atoms[id] = data
			continue
		}
		if !ofFrontends {
			if closing[name] {
				delete(closing, name)
				o.b.late.keepOpen(name)
			}
			if !o.give(s.container(set), dataplane.Keyed, name, body) {
				break
			}
			continue
		}
		e := entries[name]
		if e == nil {
			e = &entry{}
			entries[name] = e
		}
		e.set(set, s, data)
	}
	for addr := range closing {
		o.give(s.container(set), dataplane.Keyed, addr, addr)
	}
	return nil
}

// hookText is the first line of a base chain.
func hookText(c nft.Chain) string {
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", c.Type, hookNames[c.Hook], c.Priority)
}

var hookNames = map[nft.Hook]string{
	nft.Prerouting: "prerouting", nft.Input: "input", nft.Forward: "forward", nft.Output: "output", nft.Postrouting: "postrouting",
}

// parseHook reads what hookText writes.
func parseHook(name, text string) (nft.Chain, error) {
	c := nft.Chain{Name: name}
	var hook string
	if _, err := fmt.Sscanf(text, "type %s hook %s priority %d; policy accept;", &c.Type, &hook, &c.Priority); err != nil {
		return c, fmt.Errorf("nftables: hook %q of chain %s: %w", text, name, err)
	}
	for number, word := range hookNames {
		if word == hook {
			c.Hook = number
			return c, nil
		}
	}
	return c, fmt.Errorf("nftables: hook %q of chain %s", text, name)
}

// ruleUserdata marks the text of a rule in its userdata. nft passes over types
// that it does not know, and knows 0 and 1.
const ruleUserdata = 'P'

// rule returns a rule with its text. The text is only a hint: what counts when
// the rule is read back is what it does.
func (w *words) rule(chain, text string) (nft.Rule, error) {
	exprs, err := w.compile(text)
	if err != nil {
		return nft.Rule{}, err
	}
	if len(text) > 255 {
		return nft.Rule{}, fmt.Errorf("nftables: rule of %d bytes: %s", len(text), text)
	}
	return nft.Rule{Chain: chain, Exprs: exprs, Userdata: tlv(ruleUserdata, []byte(text))}, nil
}

// ruleText returns the text of a rule that does what its text says, and else
// something that no rule of ours is.
func (w *words) ruleText(r nft.Rule) string {
	if u := r.Userdata; !r.Foreign && len(u) > 2 && u[0] == ruleUserdata && int(u[1]) == len(u)-2 {
		text := string(u[2:])
		if exprs, err := w.compile(text); err == nil && slices.Equal(exprs, r.Exprs) {
			return text
		}
	}
	return "(not ours)"
}
