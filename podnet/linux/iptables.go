package linux

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/podnet"
)

// IPTables is the dataplane.Kernel of the masquerade and forward rules of one
// family in iptables: two chains of ours, and a jump to each.
type IPTables struct {
	tool  *iptables.Tool
	watch *iptables.Watch
}

// NewIPTables returns the rules that tool reaches. The watch tells when others
// change them.
func NewIPTables(tool *iptables.Tool, watch *iptables.Watch) *IPTables {
	return &IPTables{tool, watch}
}

// ours maps the chains that are written to whether they are ours alone; in the
// others the jumps are.
var ours = map[string]bool{
	"nat/POSTROUTING": false, "nat/" + podnet.MasqueradeChain: true,
	"filter/FORWARD": false, "filter/" + podnet.ForwardChain: true,
}

// Observe yields our chains and the jumps to them.
func (k *IPTables) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		for _, table := range []string{"nat", "filter"} {
			if !k.tool.Loaded(table) {
				continue
			}
			ranks := map[string]int{}
			for line, err := range k.tool.Save(ctx, table) {
				if err != nil {
					yield(dataplane.Object{}, fmt.Errorf("podnet: observe rules: %w", err))
					return
				}
				if o, ok := observed(table, line, ranks); ok && !yield(o, nil) {
					return
				}
			}
		}
	}
}

// observed reads one line of iptables-save.
func observed(table, line string, ranks map[string]int) (dataplane.Object, bool) {
	if chain, ok := strings.CutPrefix(line, ":"); ok {
		chain, _, _ = strings.Cut(chain, " ")
		whole, ok := ours[table+"/"+chain]
		key := dataplane.Key{Container: table + "/" + chain}
		if !whole {
			key.Rank = dataplane.Keyed
		}
		return dataplane.Object{Key: key}, ok
	}
	rule, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return dataplane.Object{}, false
	}
	chain, body, _ := strings.Cut(rule, " ")
	container := table + "/" + chain
	whole, ok := ours[container]
	switch {
	case !ok:
		return dataplane.Object{}, false
	case whole:
		ranks[container]++
		return dataplane.Object{Key: dataplane.Key{Container: container, Rank: ranks[container] - 1}, Body: body}, true
	}
	_, target, _ := strings.Cut(body, "-j ")
	if !ours[table+"/"+target] {
		return dataplane.Object{}, false
	}
	name := target
	if ranks[container+target]++; ranks[container+target] > 1 {
		name = fmt.Sprintf("%s #%d", target, ranks[container+target]) // one too many
	}
	return dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed, Name: name}, Body: body}, true
}

// Apply writes the plan with one iptables-restore.
func (k *IPTables) Apply(ctx context.Context, p dataplane.Plan) error {
	var text bytes.Buffer
	var effect iptables.Effect
	effect.Entries = map[string]int{}
	for _, table := range []string{"nat", "filter"} {
		var section bytes.Buffer
		for _, c := range p.Changes {
			chain, here := strings.CutPrefix(c.Container, table+"/")
			if !here {
				continue
			}
			effect.Entries[table] += writeChain(&section, chain, c)
		}
		if section.Len() > 0 {
			fmt.Fprintf(&text, "*%s\n%sCOMMIT\n", table, ordered(section.String()))
			effect.Commits++
		}
	}
	err := k.watch.Write(k.tool.Family, effect, func() error { return k.tool.Restore(ctx, text.Bytes()) })
	if err != nil {
		return fmt.Errorf("podnet: write rules: %w", err)
	}
	return nil
}

// writeChain returns by how many entries the table grows.
func writeChain(b *bytes.Buffer, chain string, c dataplane.Change) int {
	growth := len(c.Created) - len(c.Deleted)
	switch {
	case c.Remove:
		fmt.Fprintf(b, ":%s - [0:0]\n-X %s\n", chain, chain)
		return growth - 2
	case !c.Keyed:
		fmt.Fprintf(b, ":%s - [0:0]\n", chain)
		for _, o := range c.Lines {
			fmt.Fprintf(b, "-A %s %s\n", chain, o.Body)
		}
		if !c.Exists {
			growth += 2
		}
		return growth
	}
	for _, o := range c.Deleted {
		fmt.Fprintf(b, "-D %s %s\n", chain, o.Body)
	}
	for _, r := range c.Replaced {
		fmt.Fprintf(b, "-D %s %s\n-A %s %s\n", chain, r.Old.Body, chain, r.New.Body)
	}
	for _, o := range c.Created {
		fmt.Fprintf(b, "-A %s %s\n", chain, o.Body)
	}
	return growth
}

// ordered puts the lines of a section in an order in which iptables-restore
// takes them: chains come first, and go last, when nothing leads to them.
func ordered(section string) string {
	var first, middle, last []string
	for line := range strings.Lines(section) {
		switch {
		case line[0] == ':':
			first = append(first, line)
		case strings.HasPrefix(line, "-X"):
			last = append(last, line)
		default:
			middle = append(middle, line)
		}
	}
	return strings.Join(first, "") + strings.Join(middle, "") + strings.Join(last, "")
}

// Changes sends when somebody else changed the tables of the family, or when
// that cannot be told. The watch has to run.
func (k *IPTables) Changes(ctx context.Context) <-chan dataplane.Notice {
	out := make(chan dataplane.Notice, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-k.watch.News(k.tool.Family):
			}
			if change, err := k.watch.Changed(k.tool.Family); change.Some || err != nil {
				dataplane.Tell(out, dataplane.Notice{By: change.Program})
			}
		}
	}()
	return out
}
