package iptsave

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"portolan/netfilter"
)

// commandLine reads a whole command: [sudo] iptables [-t TABLE] COMMAND ...
func (r *reader) commandLine(line string) error {
	s := scanner{line: line}
	w, _ := s.next()
	for w == "sudo" || w == "$" || w == "#" {
		w, _ = s.next()
	}
	prog := path.Base(w)
	variant := r.variant
	var family netfilter.Family
	switch prog {
	case "iptables", "iptables-legacy", "iptables-nft":
		family = netfilter.IPv4
	case "ip6tables", "ip6tables-legacy", "ip6tables-nft":
		family = netfilter.IPv6
	default:
		return fmt.Errorf("%q begins no line of iptables rules", w)
	}
	switch {
	case strings.HasSuffix(prog, "-legacy"):
		variant = netfilter.Legacy
	case strings.HasSuffix(prog, "-nft"):
		variant = netfilter.NFT
	}
	oldFamily, oldVariant, oldTable := r.family, r.variant, r.table
	defer func() { r.family, r.variant, r.table = oldFamily, oldVariant, oldTable }()
	r.family, r.variant = family, variant
	rest, table := cutTable(s.rest())
	if table == "" {
		table = netfilter.Filter
	}
	if netfilter.TableHooks(table) == nil {
		return fmt.Errorf("there is no table %q", table)
	}
	r.table = r.find(table, family)
	return r.command(rest, netfilter.Counters{}, false)
}

// cutTable takes "-t TABLE" and "-w" out of a command, wherever they stand
// before the first match.
func cutTable(line string) (rest, table string) {
	s := scanner{line: line}
	var keep []string
	for {
		s.skip()
		at := s.pos
		w, ok := s.next()
		if !ok {
			break
		}
		switch {
		case w == "-t" || w == "--table":
			table, _ = s.next()
			continue
		case strings.HasPrefix(w, "--table="):
			table = w[len("--table="):]
			continue
		case w == "-w" || w == "--wait" || w == "-n" || w == "-v":
			if n, ok := s.peek(); ok && isNumber(n) && w != "-n" && w != "-v" {
				s.next()
			}
			continue
		case w == "-m" || w == "-j":
			keep = append(keep, line[at:])
			return strings.Join(keep, " "), table
		}
		keep = append(keep, line[at:s.pos])
	}
	return strings.Join(keep, " "), table
}

// command reads one -A, -I, -D, ... with its chain.
func (r *reader) command(line string, n netfilter.Counters, counted bool) error {
	s := scanner{line: line}
	cmd, ok := s.next()
	if !ok {
		return fmt.Errorf("counters without a rule")
	}
	for cmd == "-t" || cmd == "--table" {
		name, _ := s.next()
		if netfilter.TableHooks(name) == nil {
			return fmt.Errorf("there is no table %q", name)
		}
		r.table = r.find(name, r.family)
		cmd, _ = s.next()
	}
	family := netfilter.Family(0)
	switch cmd {
	case "-4", "-6":
		family = netfilter.IPv4
		if cmd == "-6" {
			family = netfilter.IPv6
		}
		cmd, _ = s.next()
	}
	chain, hasChain := s.peek()
	if !hasChain || strings.HasPrefix(chain, "-") || chain == "!" {
		chain, hasChain = "", false
	} else {
		s.next()
	}
	switch cmd {
	case "-A", "--append", "-I", "--insert", "-D", "--delete", "-R", "--replace":
		if !hasChain {
			return fmt.Errorf("%s lacks a chain", cmd)
		}
		return r.change(cmd, chain, &s, family, netfilter.Rule{Line: r.line, Counters: n, Counted: counted}, line)
	}
	return r.chainCommand(cmd, chain, hasChain, &s)
}

// chainCommand reads the commands that are about whole chains.
func (r *reader) chainCommand(cmd, chain string, hasChain bool, s *scanner) error {
	t := r.current()
	if !hasChain && (cmd == "-N" || cmd == "-P" || cmd == "-E") {
		return fmt.Errorf("%s lacks a chain", cmd)
	}
	switch cmd {
	case "-N", "--new-chain", "--new":
		t.AddChain(chain)
	case "-P", "--policy":
		w, _ := s.next()
		c := t.AddChain(chain)
		switch {
		case c.Hook == netfilter.NoHook:
			return fmt.Errorf("chain %s of table %s has no policy", chain, t.Name)
		case w == "ACCEPT":
			c.Policy = netfilter.PolicyAccept
		case w == "DROP":
			c.Policy = netfilter.PolicyDrop
		default:
			return fmt.Errorf("chain %s: policy %q is neither ACCEPT nor DROP", chain, w)
		}
		if w, ok := s.next(); ok && w == "-c" {
			var q ruleReader
			p, _ := s.next()
			b, _ := s.next()
			c.Counters = netfilter.Counters{Packets: q.number(p, 64), Bytes: q.number(b, 64)}
			return q.err
		}
	case "-F", "--flush":
		for _, c := range t.Chains() {
			if !hasChain || c.Name == chain {
				c.Rules = nil
			}
		}
	case "-X", "--delete-chain":
		for _, c := range slices.Clone(t.Chains()) {
			if c.Hook == netfilter.NoHook && (!hasChain || c.Name == chain) {
				t.RemoveChain(c.Name)
			}
		}
	case "-L", "--list", "-S", "--list-rules", "-Z", "--zero", "-C", "--check", "-V", "--version", "-h", "--help":
	default:
		return fmt.Errorf("%q is no command on a chain", cmd)
	}
	return nil
}

// change carries out -A, -I, -D or -R.
func (r *reader) change(cmd, chain string, s *scanner, family netfilter.Family, rule netfilter.Rule, line string) error {
	t := r.current()
	at := 0 // rule number, from 1
	if cmd != "-A" && cmd != "--append" {
		if w, ok := s.peek(); ok && isNumber(w) {
			n, err := strconv.Atoi(w)
			if err != nil || n < 1 {
				return fmt.Errorf("%s %s: %q is no rule number", cmd, chain, w)
			}
			at = n
			s.next()
		}
	}
	spec := s.rest()
	if cmd == "-D" || cmd == "--delete" {
		return remove(t, chain, at, spec)
	}
	p := &r.rules
	p.reset(spec)
	if err := p.read(); err != nil {
		return fmt.Errorf("chain %s: %w", chain, err)
	}
	if p.only != 0 {
		family = p.only
	}
	if family != 0 && r.family != 0 && family != r.family {
		return nil // a line for the other program
	}
	if family == netfilter.IPv6 && r.family == 0 {
		// The text does not say for which program it is: this line is for
		// ip6tables only.
		t = r.find(t.Name, netfilter.IPv6)
	}
	if p.counted {
		rule.Counters, rule.Counted = p.count, true
	}
	rule.Matches, rule.Target = p.matches, p.target
	rule.Text = line
	if cmd != "-A" || strings.HasPrefix(line, "-t") || line[1] != 'A' {
		rule.Text = strings.TrimSpace("-A " + chain + " " + spec)
	}
	c := t.AddChain(chain)
	switch cmd {
	case "-A", "--append":
		c.Rules = append(c.Rules, rule)
	case "-I", "--insert":
		at = max(at, 1)
		if at > len(c.Rules)+1 {
			return fmt.Errorf("-I %s %d: the chain has %d rules", chain, at, len(c.Rules))
		}
		c.Rules = slices.Insert(c.Rules, at-1, rule)
	default:
		if at < 1 || at > len(c.Rules) {
			return fmt.Errorf("-R %s %d: the chain has %d rules", chain, at, len(c.Rules))
		}
		c.Rules[at-1] = rule
	}
	return nil
}

// remove takes a rule away by its number, or the first that has the same words.
func remove(t *netfilter.Table, chain string, at int, spec string) error {
	c := t.Chain(chain)
	if c == nil {
		return fmt.Errorf("-D %s: there is no such chain", chain)
	}
	if at == 0 {
		want := strings.Join(strings.Fields("-A "+chain+" "+spec), " ")
		at = 1 + slices.IndexFunc(c.Rules, func(r netfilter.Rule) bool {
			return strings.Join(strings.Fields(r.Text), " ") == want
		})
	}
	if at < 1 || at > len(c.Rules) {
		return fmt.Errorf("-D %s: there is no such rule", chain)
	}
	c.Rules = slices.Delete(c.Rules, at-1, at)
	return nil
}
