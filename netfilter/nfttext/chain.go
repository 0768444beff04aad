package nfttext

import (
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
	"portolan/netfilter/nftword"
)

var hooks = map[string]netfilter.Hook{
	"prerouting": netfilter.Prerouting, "input": netfilter.Input, "forward": netfilter.Forward, "output": netfilter.Output, "postrouting": netfilter.Postrouting,
}

var chainTypes = map[string]netfilter.ChainType{"filter": netfilter.FilterChain, "nat": netfilter.NATChain, "route": netfilter.RouteChain}

// chain reads a chain's block, if it has one.
func (p *parser) chain(t *table, name string) error {
	c := t.AddChain(name)
	return p.block(func() error { return p.inChain(t, c) })
}

// inChain reads one line of a chain: what it is, or a rule.
func (p *parser) inChain(t *table, c *netfilter.Chain) error {
	first := p.peek()
	if first.kind == word {
		switch first.text {
		case "type":
			return p.chainType(t, c)
		case "policy":
			p.next()
			return p.policy(c)
		case "comment", "flags", "devices":
			p.pos = p.ruleEnd()
			return nil
		}
	}
	return p.rule(t, c, len(c.Rules))
}

func (p *parser) policy(c *netfilter.Chain) error {
	switch t := p.next(); t.text {
	case "accept":
		c.Policy = netfilter.PolicyAccept
	case "drop":
		c.Policy = netfilter.PolicyDrop
	default:
		return p.fail(t, "%q is no policy", t.text)
	}
	return nil
}

// chainType reads "type filter hook input priority filter - 5".
func (p *parser) chainType(t *table, c *netfilter.Chain) error {
	begin := p.next()
	end := p.ruleEnd()
	words := strings.Fields(p.text[p.pos:end])
	p.pos = end
	if len(words) < 5 || words[1] != "hook" {
		return p.fail(begin, "the chain %s has no type and hook", c.Name)
	}
	typ, known := chainTypes[words[0]]
	hook := hooks[words[2]]
	at := slices.Index(words, "priority")
	if at < 0 || at+1 >= len(words) {
		return p.fail(begin, "the chain %s has no priority", c.Name)
	}
	prio, ok := priority(t.family, words[2], words[at+1:])
	if !ok {
		return p.fail(begin, "%q is no priority", strings.Join(words[at+1:], " "))
	}
	if t.family == "arp" || t.family == "bridge" || t.family == "netdev" {
		return nil
	}
	if !known || hook == netfilter.NoHook {
		p.warn("chain %s of table %s (type %s, hook %s) is not modelled: its rules are not followed", c.Name, t.title, words[0], words[2])
		return nil
	}
	p.chains++
	c.Type, c.Hook, c.Priority, c.Order = typ, hook, prio, p.chains
	if c.Policy == netfilter.NoPolicy {
		c.Policy = netfilter.PolicyAccept
	}
	return nil
}

// priority reads "-100", "filter", "filter - 5", "dstnat-10".
func priority(family, hook string, words []string) (int, bool) {
	s := strings.Join(words, "")
	if n, err := strconv.Atoi(s); err == nil {
		return n, true
	}
	name, offset := s, 0
	if i := strings.IndexAny(s, "+-"); i > 0 {
		n, err := strconv.Atoi(s[i:])
		if err != nil {
			return 0, false
		}
		name, offset = s[:i], n
	}
	return nftword.Priority(family, hook, name, offset)
}

// addRule reads `add rule` and `insert rule`.
func (p *parser) addRule(t *table, chain string, first bool) error {
	c := t.Chain(chain)
	if c == nil {
		return p.fail(p.peek(), "table %s has no chain %s yet", t.title, chain)
	}
	at := len(c.Rules)
	if first {
		at = 0
	}
	if w := p.peek(); w.word("index") || w.word("position") || w.word("handle") {
		p.next()
		n, err := strconv.Atoi(p.next().text)
		if err != nil || w.text != "index" || n >= len(c.Rules) {
			return p.fail(w, "the place of a rule by its %s cannot be found in a text", w.text)
		}
		if at = n; !first {
			at++
		}
	}
	return p.rule(t, c, at)
}

// rule reads a rule up to its end.
func (p *parser) rule(t *table, c *netfilter.Chain, at int) error {
	first := p.peek()
	begin := first.at
	stop, flat := p.stop, p.flat
	p.pos = begin
	end, closed := p.closedEnd()
	if !closed {
		return p.fail(first, "the rule that begins here has no end")
	}
	p.stop, p.flat = end, true
	r := &rule{parser: p, table: t}
	r.Line = p.lineAt(begin)
	r.read()
	r.Text = text(p.text[begin:p.stop])
	p.pos = p.stop
	p.stop, p.flat = stop, flat
	c.Rules = slices.Insert(c.Rules, at, r.Rule)
	return nil
}

// text is a rule as it is shown: on one line, without the numbers of its
// counters.
func text(s string) string {
	words := fields(s)
	out := words[:0]
	for i := 0; i < len(words); i++ {
		out = append(out, words[i])
		if words[i] == "counter" && i+4 < len(words) && words[i+1] == "packets" && words[i+3] == "bytes" && isNumber(words[i+2]) && isNumber(words[i+4]) {
			i += 4
		}
	}
	return strings.Join(out, " ")
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 64)
	return err == nil
}

// fields cuts at spaces outside of quotes, up to a remark.
func fields(s string) []string {
	var out []string
	from, quotes := -1, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quotes = !quotes
			if from < 0 {
				from = i
			}
		case quotes:
		case c == '#':
			if from >= 0 {
				out = append(out, s[from:i])
			}
			return out
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\\' && i+1 < len(s) && s[i+1] == '\n':
			if from >= 0 {
				out = append(out, s[from:i])
			}
			from = -1
		case from < 0:
			from = i
		}
	}
	if from >= 0 {
		out = append(out, s[from:])
	}
	return out
}
