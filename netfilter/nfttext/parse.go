package nfttext

import (
	"fmt"
	"slices"
	"strings"

	"portolan/netfilter"
)

// Dump is what a text says.
type Dump struct {
	Tables   []*netfilter.Table
	Warnings []string
}

// Parse reads a ruleset. name is the text's name in errors and in the tables.
func Parse(name, text string) (Dump, error) {
	p := &parser{scanner: scanner{text: text, stop: len(text)}, name: name, tables: map[string]*table{}}
	if err := p.file(); err != nil {
		return Dump{}, err
	}
	d := Dump{Warnings: p.warnings}
	for _, t := range p.order {
		if t.dormant {
			d.Warnings = append(d.Warnings, fmt.Sprintf("table %s is dormant: its rules do not run and were left out", t.title))
			continue
		}
		t.finish()
		d.Tables = append(d.Tables, t.Table)
		if byIPTables(t) {
			d.Warnings = append(d.Warnings, fmt.Sprintf("table %s is iptables' own: nft does not show its comments and some of its matches; iptables-nft-save does", t.title))
		}
	}
	return d, nil
}

// byIPTables tells the tables that iptables-nft made.
func byIPTables(t *table) bool {
	_, is := netfilter.IPTablesName(t.Table)
	return is
}

// parser reads one text.
type parser struct {
	scanner
	name     string
	tables   map[string]*table // by family and name
	order    []*table
	warnings []string
	chains   int // base chains so far
	seen     map[string]bool
}

// table is a table while it is read.
type table struct {
	*netfilter.Table
	title   string
	family  string // nft's
	sets    map[string]*netfilter.NFTSet
	objects map[string]netfilter.Metered // named limits and quotas
	dormant bool
}

// fail makes an error about the text at a token.
func (p *parser) fail(t token, format string, a ...any) error {
	return fmt.Errorf("nfttext: %s:%d: %s", p.name, p.lineAt(t.at), fmt.Sprintf(format, a...))
}

// warn says something once.
func (p *parser) warn(format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if p.seen[s] {
		return
	}
	if p.seen == nil {
		p.seen = map[string]bool{}
	}
	p.seen[s] = true
	p.warnings = append(p.warnings, s)
}

// file reads everything.
func (p *parser) file() error {
	for {
		t := p.next()
		switch {
		case t.kind == end:
			return nil
		case t.kind == line:
			continue
		case t.kind != word:
			return p.fail(t, "%q where a table or a command should begin", t.text)
		}
		if err := p.command(t); err != nil {
			return err
		}
	}
}

// command reads a command; a table by itself is the command to add it.
func (p *parser) command(t token) error {
	switch t.text {
	case "add", "create", "insert":
		what := p.next()
		return p.add(what, t.text == "insert")
	case "flush", "delete", "destroy":
		return p.remove(t)
	case "table", "chain", "rule", "set", "map", "element", "counter", "quota", "limit", "ct", "flowtable", "secmark", "synproxy":
		return p.add(t, false)
	case "list", "reset", "monitor", "describe", "export":
		p.pos = p.ruleEnd()
		return nil
	}
	return p.fail(t, "the command %q is not read; the output of nft list ruleset is", t.text)
}

var families = []string{"ip", "ip6", "inet", "arp", "bridge", "netdev"}

// family reads a family, ip if there is none.
func (p *parser) family() string {
	t := p.peek()
	if t.kind == word && slices.Contains(families, t.text) {
		p.next()
		return t.text
	}
	return "ip"
}

// names reads so many names.
func (p *parser) names(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		t := p.next()
		if t.kind != word && t.kind != quoted {
			return nil, p.fail(t, "%q where a name should be", t.text)
		}
		out[i] = t.text
	}
	return out, nil
}

// subject reads which object a command is about: its family, its table and, unless it is
// one, its name.
func (p *parser) subject(what token) (family string, names []string, err error) {
	if what.kind != word {
		return "", nil, p.fail(what, "%q where the kind of an object should be", what.text)
	}
	if what.text == "ct" {
		p.next() // helper, timeout, expectation
	}
	family = p.family()
	n := 2
	if what.text == "table" {
		n = 1
	}
	names, err = p.names(n)
	return family, names, err
}

// tableOf finds a table or makes it.
func (p *parser) tableOf(family, name string) *table {
	title := family + " " + name
	if t := p.tables[title]; t != nil {
		return t
	}
	f := map[string]netfilter.Family{"ip": netfilter.IPv4, "ip6": netfilter.IPv6}[family]
	t := &table{Table: netfilter.NewTable(f, netfilter.Native, title, p.name), title: title, family: family, sets: map[string]*netfilter.NFTSet{}, objects: map[string]netfilter.Metered{}}
	p.tables[title] = t
	switch family {
	case "ip", "ip6", "inet":
		p.order = append(p.order, t)
	default:
		p.warn("table %s is not of IP: its rules are not followed", title)
	}
	return t
}

// add reads what comes after `add`.
func (p *parser) add(what token, first bool) error {
	family, names, err := p.subject(what)
	if err != nil {
		return err
	}
	t := p.tableOf(family, names[0])
	switch what.text {
	case "table":
		return p.block(func() error { return p.inTable(t) })
	case "chain":
		return p.chain(t, names[1])
	case "rule":
		return p.addRule(t, names[1], first)
	case "set", "map":
		return p.set(t, names[1], what.text == "map")
	case "element":
		return p.addElements(t, names[1])
	}
	return p.object(t, what.text, names[1])
}

// block reads a block in braces, if one begins here; each reads one part of
// it.
func (p *parser) block(each func() error) error {
	open := p.peek()
	if !open.is("{") {
		return nil
	}
	p.next()
	for {
		t := p.peek()
		switch {
		case t.kind == end:
			return p.fail(open, "the block that begins here has no end")
		case t.is("}"):
			p.next()
			return nil
		case t.kind == line:
			p.next()
			continue
		}
		if err := each(); err != nil {
			return err
		}
		if p.pos <= t.at {
			p.pos = t.at + 1 // each part takes something
		}
	}
}

// inTable reads one object of a table's block.
func (p *parser) inTable(t *table) error {
	what := p.next()
	if what.kind != word {
		return p.fail(what, "%q where an object of table %s should begin", what.text, t.title)
	}
	switch what.text {
	case "comment":
		p.pos = p.ruleEnd()
		return nil
	case "flags":
		end := p.ruleEnd()
		t.dormant = strings.Contains(p.text[p.pos:end], "dormant")
		p.pos = end
		return nil
	case "ct":
		p.next()
	}
	names, err := p.names(1)
	if err != nil {
		return err
	}
	switch what.text {
	case "chain":
		return p.chain(t, names[0])
	case "set", "map":
		return p.set(t, names[0], what.text == "map")
	case "meter":
		return p.set(t, names[0], false)
	}
	return p.object(t, what.text, names[0])
}

// object reads a named object. Limits and quotas matter to rules, the others
// do not.
func (p *parser) object(t *table, what, name string) error {
	open := p.peek()
	if !open.is("{") {
		p.pos = p.ruleEnd()
		return nil
	}
	p.next()
	from := p.pos
	p.skipBlock()
	body := strings.Join(strings.Fields(strings.TrimSuffix(p.text[from:p.pos], "}")), " ")
	switch what {
	case "limit", "quota":
		m := metered(what, body)
		m.Text = what + " " + name + " (" + body + ")"
		t.objects[what+" "+name] = m
	case "flowtable":
		p.warn("table %s has flowtable %s: packets of connections that it takes over see no rule", t.title, name)
	case "counter", "ct", "secmark", "synproxy", "tunnel":
	default:
		return p.fail(open, "an object of the kind %q is not known", what)
	}
	return nil
}

// finish resolves what rules name before it is there. A set that rules change
// is dynamic, which JSON does not say of all.
func (t *table) finish() {
	for _, c := range t.Chains() {
		for i := range c.Rules {
			for _, s := range c.Rules[i].Statements {
				if u, is := s.(netfilter.Update); is {
					u.Set.Dynamic = true
				}
			}
		}
	}
	for _, s := range t.Sets {
		s.Index()
	}
	for name, s := range t.sets {
		if !s.Declared {
			s.Doubt = "set " + name + " is not declared"
			s.Index()
		}
	}
}
