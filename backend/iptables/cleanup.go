package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Cleanup removes every chain of ours and every jump to one, which are
// kube-proxy's too, and nothing else; kubelet's KUBE-FIREWALL stays with its
// rule and jumps. It returns what it removed, or would remove in a dry run, in
// the words "table: -X CHAIN" and "table: -D rule". Where nothing is left it
// returns nothing. A chain that a foreign chain still leads to is emptied, stays,
// and is an error.
func (b *Backend) Cleanup(ctx context.Context, dryRun bool) ([]string, error) {
	var removed []string
	var errs []error
	for _, table := range tables {
		if !b.options.Tool.Loaded(table) {
			continue
		}
		left, err := b.leftovers(ctx, table)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list := left.list()
		if len(list) > 0 && !dryRun {
			if err := b.options.Tool.Restore(ctx, left.removal()); err != nil {
				errs = append(errs, fmt.Errorf("iptables: cleanup: %w", err))
				continue
			}
		}
		removed = append(removed, list...)
		errs = append(errs, left.inUse()...)
	}
	return removed, errors.Join(errs...)
}

// ipvsChains lead to ours in kube-proxy's and our ipvs mode; who cleans up removes
// them first.
var ipvsChains = []string{"nat/KUBE-NODE-PORT", "nat/KUBE-LOAD-BALANCER"}

// leftovers is what of ours is in one table.
type leftovers struct {
	table  string
	chains map[string]bool
	jumps  []string            // "CHAIN rule", as saved, from built-in chains
	uses   map[string][]string // chain of ours -> rules of foreign chains
}

func (b *Backend) leftovers(ctx context.Context, table string) (*leftovers, error) {
	l := &leftovers{table: table, chains: map[string]bool{}, uses: map[string][]string{}}
	builtin := map[string]bool{}
	for line, err := range b.options.Tool.Save(ctx, table) {
		if err != nil {
			return nil, fmt.Errorf("iptables: cleanup: %w", err)
		}
		if declaration, ok := strings.CutPrefix(line, ":"); ok {
			chain, policy, _ := strings.Cut(declaration, " ")
			switch {
			case ownChain(table + "/" + chain):
				l.chains[chain] = true
			case !strings.HasPrefix(policy, "-"):
				builtin[chain] = true
			}
			continue
		}
		rule, ok := strings.CutPrefix(line, "-A ")
		if !ok {
			continue
		}
		chain, _, _ := strings.Cut(rule, " ")
		target := targetOf(rule)
		switch {
		case !ownChain(table+"/"+target) || l.chains[chain]:
		case builtin[chain]:
			l.jumps = append(l.jumps, rule)
		case slices.Contains(ipvsChains, table+"/"+chain): // goes, too, before ours
		default:
			l.uses[target] = append(l.uses[target], rule)
		}
	}
	return l, nil
}

// targetOf returns where a saved rule jumps or goes to.
func targetOf(rule string) string {
	for _, option := range []string{" -j ", " -g "} {
		if i := strings.LastIndex(rule, option); i >= 0 {
			target, _, _ := strings.Cut(rule[i+len(option):], " ")
			return target
		}
	}
	return ""
}

func (l *leftovers) names() []string { return slices.Sorted(maps.Keys(l.chains)) }

func (l *leftovers) list() []string {
	var out []string
	for _, j := range l.jumps {
		out = append(out, l.table+": -D "+j)
	}
	for _, c := range l.names() {
		if l.uses[c] == nil {
			out = append(out, l.table+": -X "+c)
		}
	}
	return out
}

func (l *leftovers) removal() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", l.table)
	names := l.names()
	for _, c := range slices.Backward(names) {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	for _, j := range l.jumps {
		fmt.Fprintf(&b, "-D %s\n", j)
	}
	for _, c := range names {
		if l.uses[c] == nil {
			fmt.Fprintf(&b, "-X %s\n", c)
		}
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}

func (l *leftovers) inUse() []error {
	var errs []error
	for _, c := range slices.Sorted(maps.Keys(l.uses)) {
		errs = append(errs, fmt.Errorf("iptables: cleanup: chain %s of table %s is emptied but stays, since a rule of another program leads to it: -A %s",
			c, l.table, l.uses[c][0]))
	}
	return errs
}
