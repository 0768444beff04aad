package iptables

import (
	"errors"
	"fmt"
	"slices"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/kernel/nft"
)

// telltales are chains, by table, that nobody empties but by emptying the table:
// ours as a whole, and never without a rule. In mangle there is none: nothing of ours
// there has rules.
var telltales = map[string]string{"filter": filterForward, "nat": natPostrouting}

// canaries are chains that go when a table is removed or flushed with its chains.
var canaries = map[string]string{"filter": filterCanary, "nat": natCanary, "mangle": mangleCanary}

// glance looks whether jumps, canaries and telltales are there; nil when they are. It
// takes a few questions to the kernel, where iptables-nft-save takes seconds for
// 10,000 Services. Of legacy tables it says nothing: the cheapest question about one
// of their chains copies the table. It is too early while this process writes.
func (b *Backend) glance(watch *iptables.Watch) (g *dataplane.Glance, early bool, err error) {
	early = watch.Between(b.options.Tool.Family, func(c *nft.Conn) { g, err = b.glanceThrough(c) })
	return g, early, err
}

// glanceThrough asks table by table; nil when nothing is missing.
func (b *Backend) glanceThrough(c *nft.Conn) (*dataplane.Glance, error) {
	var g dataplane.Glance
	missing := false
	for _, table := range tables {
		l := glimpse{conn: c, table: nft.Table{Family: nft.IPv4, Name: table}, into: &g}
		if b.options.Tool.Family == iptables.IPv6 {
			l.table.Family = nft.IPv6
		}
		emptied := l.emptied()
		if emptied {
			g.Emptied = append(g.Emptied, table+"/")
		}
		missing = l.jumps(emptied) || emptied || missing
		if l.err != nil {
			return nil, fmt.Errorf("iptables: glance at table %s: %w", l.table, l.err)
		}
	}
	if !missing {
		return nil, nil
	}
	return &g, nil
}

// glimpse is a glance at one table.
type glimpse struct {
	conn  *nft.Conn
	table nft.Table
	into  *dataplane.Glance
	err   error
}

func (l *glimpse) has(container string) bool {
	there, err := l.conn.HasChain(l.table, chainOf(container))
	l.err = errors.Join(l.err, err)
	return there
}

func (l *glimpse) targets(container string) []string {
	targets, err := l.conn.Targets(l.table, chainOf(container))
	l.err = errors.Join(l.err, err)
	return targets
}

func (l *glimpse) emptied() bool {
	telltale := telltales[l.table.Name]
	return !l.has(canaries[l.table.Name]) || telltale != "" && len(l.targets(telltale)) == 0
}

// jumps notes which jumps to our chains are left, and tells whether one is missing.
// One that is there counts as good: a full look comes after.
func (l *glimpse) jumps(emptied bool) (missing bool) {
	for from := range builtIn {
		if tableOf(from) != l.table.Name {
			continue
		}
		l.claim(from)
		targets := l.targets(from)
		for i, j := range jumps {
			switch {
			case j.from != from:
			case slices.Contains(targets, chainOf(j.to)):
				l.into.Seen = append(l.into.Seen, j.object(i))
			default:
				missing = true
			}
		}
	}
	if emptied && tableOf(filterFirewall) == l.table.Name && l.has(filterFirewall) {
		l.claim(filterFirewall)
		if len(l.targets(filterFirewall)) > 0 { // kubelet's too, who was there since
			l.into.Seen = append(l.into.Seen, localnet)
		}
	}
	return missing
}

// claim says that a shared chain is there.
func (l *glimpse) claim(container string) {
	l.into.Seen = append(l.into.Seen, dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed}})
}

// builtIn are the chains from which jumps lead to ours.
var builtIn = func() map[string]bool {
	out := map[string]bool{}
	for _, j := range jumps {
		out[j.from] = true
	}
	return out
}()
