package iptables

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// tables in the order in which they are observed.
var tables = []string{"filter", "nat", "mangle"}

// LookAhead begins what the next Observe needs, which comes soon.
func (b *Backend) LookAhead(ctx context.Context) { b.ahead.Begin(ctx, b.options.Tool, tables...) }

// Observe streams our chains and our lines in shared chains, table by table.
func (b *Backend) Observe(ctx context.Context) iter.Seq2[dataplane.Object, error] {
	return func(yield func(dataplane.Object, error) bool) {
		var t observedTable
		lines := b.ahead.Take()
		if lines == nil {
			lines = b.options.Tool.SaveAll(ctx, tables...)
		}
		for line, err := range lines {
			if err != nil {
				yield(dataplane.Object{}, fmt.Errorf("iptables: observe: %w", err))
				return
			}
			if table, is := strings.CutPrefix(line, "*"); is {
				t = observedTable{b: b, table: table, yield: yield}
			}
			if !t.line(line) {
				return
			}
		}
	}
}

// observedTable turns the lines of one iptables-save into objects.
type observedTable struct {
	b     *Backend
	table string
	yield func(dataplane.Object, error) bool

	chain     string // of the last line
	container string // of chain; empty when it is not ours
	shared    map[string]dataplane.Key
	rank      int
}

// line tells whether to go on.
func (t *observedTable) line(line string) bool {
	switch {
	case strings.HasPrefix(line, "-A "):
		chain, rule, _ := strings.Cut(line[len("-A "):], " ")
		return t.rule(chain, rule)
	case strings.HasPrefix(line, ":"):
		chain, _, _ := strings.Cut(line[1:], " ")
		container := t.table + "/" + chain
		switch {
		case ownChain(container):
			return t.yield(dataplane.Object{Key: dataplane.Key{Container: container}}, nil)
		case t.b.keys[container] != nil:
			return t.yield(dataplane.Object{Key: dataplane.Key{Container: container, Rank: dataplane.Keyed}}, nil)
		}
	}
	return true
}

// rule yields a rule of ours: known by its number in a chain of our own, and by its text in
// one that others write to as well.
func (t *observedTable) rule(chain, rule string) bool {
	if chain != t.chain {
		t.chain, t.container, t.rank = chain, t.table+"/"+chain, 0
		t.shared = t.b.keys[t.container]
		if t.shared == nil && !ownChain(t.container) {
			t.container = ""
		}
	}
	if t.container == "" {
		return true
	}
	if t.shared != nil {
		if !strings.Contains(rule, "KUBE-") && t.container != filterFirewall {
			return true
		}
		body, _ := iptables.Canonical(rule)
		key, ours := t.shared[body]
		if !ours && strings.HasPrefix(iptables.TargetOf(" "+rule), ownPrefix) {
			key, ours = dataplane.Key{Container: t.container, Rank: dataplane.Keyed, Name: body}, true // of another layout
		}
		return !ours || t.yield(dataplane.Object{Key: key, Body: body}, nil)
	}
	body, _ := iptables.Canonical(rule)
	o := dataplane.Object{Key: dataplane.Key{Container: t.container, Rank: t.rank}, Body: body}
	t.rank++
	return t.yield(o, nil)
}
