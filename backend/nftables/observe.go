package nftables

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// Observe streams what is in our table: chains with rules, sets, and then the
// elements of one set after the other. What waits to be removed counts as gone.
// A table of another layout is not there: the plan that follows replaces it.
func (b *Backend) Observe(context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		o := observation{b: b, yield: yield, late: newWaiting()}
		if err := o.run(); err != nil {
			yield(dataplane.Object{}, fmt.Errorf("nftables: observe: %w", err))
			return
		}
		if !o.stopped {
			b.late.only(o.late)
			b.fresh = true
		}
	}
}

type observation struct {
	b       *Backend
	yield   func(dataplane.Object, error) bool
	late    waiting // what was seen of those that wait
	stopped bool
}

// give tells whether to go on.
func (o *observation) give(container string, rank int, name, body string) bool {
	if !o.stopped {
		o.stopped = !o.yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: rank, Name: name}, Body: body}, nil)
	}
	return !o.stopped
}

func (o *observation) run() error {
	b := o.b
	b.ids = newScopeIDs()
	there, err := b.options.Conn.HasTable(b.table)
	if err != nil {
		return err
	}
	if !there {
		b.rebuild = false
		return nil
	}
	chains, err := b.options.Conn.Chains(b.table)
	if err != nil {
		return err
	}
	b.rebuild = b.rebuild || !slices.ContainsFunc(chains, func(c nft.Chain) bool { return c.Name == layoutChain(layout) })
	if b.rebuild {
		return nil
	}
	if err := o.chains(chains); err != nil {
		return err
	}
	return o.sets()
}

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
	// The names of scopes come first, since others hold only their numbers.
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

func rankOf(set string) int {
	if set == affinityLearn {
		return 0
	}
	return 1
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
	var found collection
	err := o.b.options.Conn.Elements(o.b.table, set, found.reset, found.add)
	if err != nil {
		return err
	}
	for name, body := range o.b.objectsOf(s, &found) {
		if !ofFrontends {
			if !o.give(s.container(set), dataplane.Keyed, name, body) {
				break
			}
			continue
		}
		data := dataOf(name, body)
		id := slotID{set, name}
		if _, late := o.b.late.slots(id); late {
			o.late.slots[id] = data
			continue
		}
		e := entries[name]
		if e == nil {
			e = &entry{}
			entries[name] = e
		}
		e.set(set, s, data)
	}
	return nil
}

// collection holds the elements of one set.
type collection struct {
	list []nft.Element
	room []byte
}

func (c *collection) reset() { c.list, c.room = c.list[:0], c.room[:0] }

func (c *collection) add(e nft.Element) {
	e.Key, e.KeyEnd, e.Data = c.copy(e.Key), c.copy(e.KeyEnd), c.copy(e.Data)
	c.list = append(c.list, e)
}

func (c *collection) copy(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if cap(c.room)-len(c.room) < len(b) {
		c.room = make([]byte, 0, 64<<10)
	}
	from := len(c.room)
	c.room = append(c.room, b...)
	return c.room[from:len(c.room):len(c.room)]
}

// objectsOf turns elements into names and bodies as Render writes them.
func (b *Backend) objectsOf(s *shape, c *collection) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if s.isSlots() || s.ranges {
			b.grouped(s, c.list, yield)
			return
		}
		for _, e := range c.list {
			if !yield(b.plain(s, e)) {
				return
			}
		}
	}
}

// plain is an element that is an object by itself.
func (b *Backend) plain(s *shape, e nft.Element) (name, body string) {
	if s.key[0] == scope {
		id := binary.NativeEndian.Uint32(e.Key)
		if name = e.Comment; name == "" {
			name = fmt.Sprintf("#%d", id)
		}
		b.ids.learn(name, id)
	} else {
		text, _ := b.words.keyText(nil, s.key, e.Key)
		name = string(text)
	}
	switch s.holds {
	case aVerdict:
		return name, name + " : " + verdictText(e.Verdict)
	case aScope:
		id := binary.NativeEndian.Uint32(e.Data)
		if text := b.ids.name(id); text != "" {
			return name, name + " : " + text
		}
		return name, fmt.Sprintf("%s : #%d", name, id)
	}
	return name, name
}

// grouped puts the elements together that belong to one frontend.
func (b *Backend) grouped(s *shape, list []nft.Element, yield func(string, string) bool) {
	front := len(s.key) - 1
	cut := 0
	for _, p := range s.key[:front] {
		_, length := b.words.partType(p)
		cut += (length + 3) &^ 3
	}
	slices.SortFunc(list, func(x, y nft.Element) int {
		if c := strings.Compare(string(x.Key[:cut]), string(y.Key[:cut])); c != 0 {
			return c
		}
		if s.ranges {
			return strings.Compare(string(x.Key[cut:]), string(y.Key[cut:]))
		}
		return int(binary.NativeEndian.Uint32(x.Key[cut:])) - int(binary.NativeEndian.Uint32(y.Key[cut:]))
	})
	var text []byte
	for len(list) > 0 {
		n := 1
		for n < len(list) && string(list[n].Key[:cut]) == string(list[0].Key[:cut]) {
			n++
		}
		text, _ = b.words.keyText(text[:0], s.key[:front], list[0].Key[:cut])
		end := len(text)
		text = append(text, " : "...)
		if s.ranges {
			text = b.rangesText(text, list[:n], cut)
		} else {
			text = b.slotsText(text, list[:n], cut)
		}
		both := string(text)
		if !yield(both[:end], both[end:]) {
			return
		}
		list = list[n:]
	}
}

func (b *Backend) slotsText(out []byte, list []nft.Element, cut int) []byte {
	next := uint32(0)
	from := len(out)
	for _, e := range list {
		at := binary.NativeEndian.Uint32(e.Key[cut:])
		switch {
		case at >= localSlots && next < localSlots:
			out, next = append(out, " | "...), localSlots
		case len(out) > from:
			out = append(out, ", "...)
		}
		if at != next {
			out = fmt.Appendf(out, "%d=", at)
		}
		out, _ = b.words.keyText(out, []part{address, port}, e.Data)
		next = at + 1
	}
	return out
}

func (b *Backend) rangesText(out []byte, list []nft.Element, cut int) []byte {
	for i, e := range list {
		if i > 0 {
			out = append(out, ", "...)
		}
		from, _ := netip.AddrFromSlice(e.Key[cut:])
		end := e.KeyEnd
		if end == nil {
			end = e.Key
		}
		to, _ := netip.AddrFromSlice(end[cut:])
		out = append(out, rangeText(from, to)...)
	}
	return out
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
