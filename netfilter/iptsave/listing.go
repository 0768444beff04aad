package iptsave

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// ParseListing reads what `iptables -L -n -v [-x]` prints: one table, or
// several one after another, or excerpts of them. A listing does not name its
// table: a built-in chain after another chain, or a chain seen before, begins
// the next table, and each is inferred from its targets and chains unless
// Options.Table says it.
//
// Listings abbreviate: 1954K packets may be anything from 1953500 to 1954499.
// Rules are given the -A form that makes the same line, as far as the listing
// shows it; what it shows in words nobody knows becomes netfilter.Unknown.
func ParseListing(file, text string, o Options) (Dump, error) {
	l := &listing{file: file, opt: o}
	if o.Variant != netfilter.Unstated {
		l.variant = o.Variant
	}
	for rest := text; rest != ""; {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		l.line++
		if err := l.read(strings.TrimSpace(line)); err != nil {
			return Dump{}, fmt.Errorf("iptsave: %s:%d: %w", file, l.line, err)
		}
	}
	return l.finish()
}

// listing holds the state of one text.
type listing struct {
	file     string
	opt      Options
	variant  netfilter.Variant
	line     int
	sections []*section
	rules    ruleReader
	columns  bool // the column line of the current chain was seen
	verbose  bool
	numbers  bool
}

// section is one table as far as it can be told apart.
type section struct {
	chains []listedChain
	text   strings.Builder
}

// listedChain is a chain as it is listed.
type listedChain struct {
	name   string
	head   string
	policy netfilter.Policy
	count  netfilter.Counters
	refs   int
	rules  []netfilter.Rule
}

// read takes the next line of a listing.
func (l *listing) read(line string) error {
	switch {
	case line == "":
		return nil
	case strings.HasPrefix(line, "Chain "):
		return l.chain(line)
	case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "Table:"):
		return nil
	}
	if len(l.sections) == 0 {
		return fmt.Errorf("a listing begins with a Chain line, not with %q", line)
	}
	f := strings.Fields(line)
	if !l.columns {
		l.columns = true
		l.numbers = f[0] == "num"
		if l.numbers {
			f = f[1:]
		}
		l.verbose = len(f) > 0 && f[0] == "pkts"
		if !slices.Contains(f, "destination") {
			return fmt.Errorf("expected the names of the columns, not %q", line)
		}
		return nil
	}
	s := l.sections[len(l.sections)-1]
	c := &s.chains[len(s.chains)-1]
	rule, err := l.rule(c.name, line)
	if err != nil {
		return fmt.Errorf("chain %s: %w", c.name, err)
	}
	c.rules = append(c.rules, rule)
	s.text.WriteString(rule.Text)
	s.text.WriteByte('\n')
	return nil
}

// chain reads "Chain NAME (policy ACCEPT 13 packets, 780 bytes)" or "Chain
// NAME (2 references)".
func (l *listing) chain(line string) error {
	name, rest, ok := strings.Cut(line[len("Chain "):], " (")
	if !ok || name == "" {
		return fmt.Errorf("a chain line has its policy or references in brackets: %q", line)
	}
	c := listedChain{name: name, head: line}
	f := strings.Fields(strings.TrimSuffix(rest, ")"))
	if len(f) >= 2 && f[0] == "policy" {
		switch f[1] {
		case "ACCEPT":
			c.policy = netfilter.PolicyAccept
		case "DROP":
			c.policy = netfilter.PolicyDrop
		default:
			return fmt.Errorf("chain %s: policy %q is neither ACCEPT nor DROP", name, f[1])
		}
		if len(f) >= 6 {
			var err error
			if c.count.Packets, err = parseCount(f[2]); err != nil {
				return err
			}
			if c.count.Bytes, err = parseCount(f[4]); err != nil {
				return err
			}
		}
	}
	if len(f) == 2 && f[1] == "references" {
		c.refs, _ = strconv.Atoi(f[0])
	}
	l.columns = false
	n := len(l.sections)
	if n == 0 || l.newSection(l.sections[n-1], name) {
		l.sections = append(l.sections, &section{})
		n++
	}
	s := l.sections[n-1]
	s.chains = append(s.chains, c)
	s.text.WriteString(line + "\n")
	return nil
}

func (l *listing) newSection(s *section, name string) bool {
	last := s.chains[len(s.chains)-1]
	if netfilter.HookOfChain(name) != netfilter.NoHook && netfilter.HookOfChain(last.name) == netfilter.NoHook {
		return true
	}
	return slices.ContainsFunc(s.chains, func(c listedChain) bool { return c.name == name })
}

// parseCount reads a number with the suffixes of iptables: thousands, not
// 1024s.
func parseCount(w string) (uint64, error) {
	mult := uint64(1)
	if n := len(w); n > 0 {
		switch w[n-1] {
		case 'K':
			mult = 1e3
		case 'M':
			mult = 1e6
		case 'G':
			mult = 1e9
		case 'T':
			mult = 1e12
		}
		if mult > 1 {
			w = w[:n-1]
		}
	}
	n, err := strconv.ParseUint(w, 10, 64)
	if err != nil || n > (1<<64-1)/mult {
		return 0, fmt.Errorf("%q is no counter", w)
	}
	return n * mult, nil
}

// rule reads one line of the listing.
func (l *listing) rule(chain, line string) (netfilter.Rule, error) {
	f := strings.Fields(line)
	r := netfilter.Rule{Line: l.line}
	if l.numbers && len(f) > 0 {
		f = f[1:]
	}
	if l.verbose {
		if len(f) < 2 {
			return r, fmt.Errorf("%q lacks counters", line)
		}
		var err error
		if r.Counters.Packets, err = parseCount(f[0]); err != nil {
			return r, err
		}
		if r.Counters.Bytes, err = parseCount(f[1]); err != nil {
			return r, err
		}
		r.Counted = true
		f = f[2:]
	}
	target := ""
	if len(f) > 1 && !(isListedProto(f[0]) && (isOpt(f[1]) || !isListedProto(f[1]))) {
		target, f = f[0], f[1:]
	}
	if len(f) == 0 || !isListedProto(f[0]) {
		return r, fmt.Errorf("%q has no protocol column", line)
	}
	var b spec
	proto := f[0]
	f = f[1:]
	in, out, frag := "*", "*", ""
	if len(f) > 0 && isOpt(f[0]) {
		frag, f = f[0], f[1:]
	}
	if l.verbose {
		if len(f) < 2 {
			return r, fmt.Errorf("%q lacks interface columns", line)
		}
		in, out, f = f[0], f[1], f[2:]
	}
	if len(f) < 2 {
		return r, fmt.Errorf("%q lacks address columns", line)
	}
	b.negated("-s", f[0], "0.0.0.0/0", "anywhere", "::/0")
	b.negated("-d", f[1], "0.0.0.0/0", "anywhere", "::/0")
	b.negated("-i", in, "*")
	b.negated("-o", out, "*")
	b.negated("-p", proto, "all", "0")
	if strings.HasSuffix(frag, "f") {
		b.negated("-f", strings.Trim(frag, "-f"))
	}
	b.extensions(target, f[2:], line)
	return l.finishRule(chain, r, b)
}

// finishRule reads the words of iptables-save that a line of a listing has been turned into.
func (l *listing) finishRule(chain string, r netfilter.Rule, b spec) (netfilter.Rule, error) {
	text := strings.TrimSpace(b.matches.String() + b.target.String())
	l.rules.reset(text)
	if err := l.rules.read(); err != nil {
		return r, err
	}
	r.Matches, r.Target = l.rules.matches, l.rules.target
	if b.unknown != "" {
		r.Matches = append(r.Matches, netfilter.Unknown{Module: "listing", Text: b.unknown, Why: "the listing's words are not known"})
	}
	r.Text = strings.TrimSpace("-A " + chain + " " + text)
	if b.unknown != "" {
		r.Text += " # " + b.unknown
	}
	return r, nil
}

func isOpt(w string) bool { return w == "--" || w == "-f" || w == "!f" || w == "----" }

func isListedProto(w string) bool {
	w = strings.TrimPrefix(w, "!")
	if _, ok := netfilter.ProtoByName(w); ok {
		return true
	}
	_, err := strconv.ParseUint(w, 10, 8)
	return err == nil
}

// finish gives each section its table.
func (l *listing) finish() (Dump, error) {
	var d Dump
	family := l.opt.Family
	if family == 0 {
		family = l.rules.family
	}
	if family == 0 {
		family = netfilter.IPv4
	}
	tables := map[string]*netfilter.Table{}
	// Sections that show their table go first, so that the others can be told
	// from what is left.
	for _, clear := range []bool{true, false} {
		for _, s := range l.sections {
			if clearTable(s.text.String()) == clear {
				l.place(s, family, tables, &d)
			}
		}
	}
	r := reader{file: l.file}
	for _, t := range d.Tables {
		r.resolve(t)
	}
	d.Warnings = append(d.Warnings, r.warn...)
	return d, nil
}

// place adds a section's chains to the table it is of.
func (l *listing) place(s *section, family netfilter.Family, tables map[string]*netfilter.Table, d *Dump) {
	name := l.tableFor(s, tables)
	t := tables[name]
	if t == nil {
		t = netfilter.NewTable(family, l.variant, name, l.file)
		tables[name] = t
		d.Tables = append(d.Tables, t)
	}
	for _, lc := range s.chains {
		if t.Chain(lc.name) != nil {
			continue
		}
		c := t.AddChain(lc.name)
		if lc.policy != netfilter.NoPolicy {
			c.Policy = lc.policy
		}
		c.Counters, c.References = lc.count, lc.refs
		c.Rules = append(c.Rules, lc.rules...)
	}
	if l.opt.Table == "" {
		d.Warnings = append(d.Warnings, fmt.Sprintf("%s: the listing that begins with %q does not name its table; taken for %s", l.file, s.chains[0].head, name))
	}
}

// clash reports whether a chain that was seen before is another one. Excerpts
// repeat chains that several built-in chains jump to.
func clash(seen *netfilter.Chain, c listedChain) bool {
	return seen != nil && (seen.Hook != netfilter.NoHook || len(seen.Rules) != len(c.rules))
}

// tableFor chooses the first likely table whose chains the section's do not
// clash with.
func (l *listing) tableFor(s *section, have map[string]*netfilter.Table) string {
	if l.opt.Table != "" {
		return l.opt.Table
	}
	first := inferTable(s.text.String())
	for _, name := range append([]string{first}, netfilter.Filter, netfilter.NAT, netfilter.Mangle) {
		free := true
		for _, c := range s.chains {
			h := netfilter.HookOfChain(c.name)
			if (h != netfilter.NoHook && !netfilter.HasHook(name, h)) || (have[name] != nil && clash(have[name].Chain(c.name), c)) {
				free = false
			}
		}
		if free {
			return name
		}
	}
	return first
}

// spec builds the options that make a listed line.
type spec struct {
	matches, target strings.Builder
	unknown         string
}

func (b *spec) add(words ...string) {
	for _, w := range words {
		b.matches.WriteString(w)
		b.matches.WriteByte(' ')
	}
}

// negated adds an option unless its value is one of those that mean "any".
func (b *spec) negated(opt, value string, any ...string) {
	if slices.Contains(any, value) {
		return
	}
	if strings.HasPrefix(value, "!") {
		b.add("!")
		value = value[1:]
	}
	b.add(opt)
	if value != "" {
		if a, err := netip.ParseAddr(value); err == nil {
			value = netip.PrefixFrom(a, a.BitLen()).String()
		}
		b.add(value)
	}
}
