package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Removal says which chains go. Chains are named with their table, "nat/KUBE-SERVICES".
type Removal struct {
	// Chains go as a whole, and with them the rules of built-in chains that lead to
	// them.
	Chains func(chain string) bool
	// Shared chains stay; their rules that lead to Chains go. May be nil.
	Shared func(chain string) bool
	// Elsewhere tells of chains that another Removal takes away before: their rules
	// are nobody's. May be nil.
	Elsewhere func(chain string) bool
}

// Remove removes chains, one iptables-restore for a table, and returns what it removed,
// or would remove in a dry run, in the words "table: -D CHAIN rule" and "table: -X
// CHAIN". Tables that hold nothing are not asked for, which would load them. A chain that
// a rule of another program leads to is emptied, stays, and is an error; the other chains
// go all the same.
func (t *Tool) Remove(ctx context.Context, tables []string, r Removal, dryRun bool) ([]string, error) {
	var removed []string
	var errs []error
	for _, table := range t.Filled(tables...) {
		l, err := t.leftovers(ctx, table, r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		commands := l.commands()
		if len(commands) > 0 && !dryRun {
			if err := t.Restore(ctx, l.text(commands)); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		for _, c := range commands {
			removed = append(removed, table+": "+c)
		}
		errs = append(errs, l.inUse()...)
	}
	return removed, errors.Join(errs...)
}

// leftovers is what of a Removal is in one table.
type leftovers struct {
	table   string
	chains  map[string]bool
	jumps   []string          // "CHAIN rule", as saved, that go with the chains
	foreign map[string]string // by chain the first rule of another program that leads there
}

// leftovers reads one table: the chains to remove, the rules of built-in and shared
// chains that lead to them, and rules of others that do.
func (t *Tool) leftovers(ctx context.Context, table string, r Removal) (*leftovers, error) {
	l := &leftovers{table: table, chains: map[string]bool{}, foreign: map[string]string{}}
	is := func(which func(string) bool, chain string) bool { return which != nil && which(table+"/"+chain) }
	builtin := map[string]bool{}
	for line, err := range t.Save(ctx, table) {
		if err != nil {
			return nil, err
		}
		if declaration, ok := strings.CutPrefix(line, ":"); ok {
			chain, policy, _ := strings.Cut(declaration, " ")
			builtin[chain] = !strings.HasPrefix(policy, "-")
			if r.Chains(table + "/" + chain) {
				l.chains[chain] = true
			}
			continue
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, _, _ := strings.Cut(rule, " ")
		target := TargetOf(rule)
		switch {
		case l.chains[chain] || !l.chains[target]:
		case builtin[chain] || is(r.Shared, chain):
			l.jumps = append(l.jumps, rule)
		case is(r.Elsewhere, chain):
		case l.foreign[target] == "":
			l.foreign[target] = rule
		}
	}
	return l, nil
}

// TargetOf returns where a saved rule jumps or goes to; empty when nowhere.
func TargetOf(rule string) string {
	for _, option := range []string{" -j ", " -g "} {
		if i := strings.LastIndex(rule, option); i >= 0 {
			target, _, _ := strings.Cut(rule[i+len(option):], " ")
			return target
		}
	}
	return ""
}

// commands removes jumps before the chains they lead to; a chain that a rule of others leads
// to stays.
func (l *leftovers) commands() []string {
	var out []string
	for _, rule := range l.jumps {
		out = append(out, "-D "+rule)
	}
	for _, c := range slices.Sorted(maps.Keys(l.chains)) {
		if l.foreign[c] == "" {
			out = append(out, "-X "+c)
		}
	}
	return out
}

// text empties all chains first, since they lead to each other; in reverse order,
// which iptables is quickest with.
func (l *leftovers) text(commands []string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", l.table)
	for _, c := range slices.Backward(slices.Sorted(maps.Keys(l.chains))) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	for _, c := range commands {
		fmt.Fprintln(&b, c)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}

func (l *leftovers) inUse() []error {
	var errs []error
	for _, c := range slices.Sorted(maps.Keys(l.foreign)) {
		errs = append(errs, fmt.Errorf("iptables: chain %s of table %s is emptied but stays, since a rule of another program leads to it: -A %s",
			c, l.table, l.foreign[c]))
	}
	return errs
}
