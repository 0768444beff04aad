package ipvs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// pass is a half of what a plan does to rules: those that come are written before the
// sets that they match with are filled, those that go when they are empty.
type pass int

const (
	comes pass = iota
	goes
)

// writeRules writes a pass with one iptables-restore, if there is anything in it.
func (u *update) writeRules(ctx context.Context, half pass) error {
	in := restoreText{}
	for _, table := range tables {
		in.table(table, u.rules, half)
	}
	if in.buf.Len() == 0 {
		return nil
	}
	b := u.b
	write := func() error { return b.options.Kernel.Tool.Restore(ctx, in.buf.Bytes()) }
	err := error(nil)
	if b.options.Watch == nil {
		err = write()
	} else {
		err = b.options.Watch.Write(b.options.Kernel.Tool.Family, in.effect, write)
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("ipvs: apply: %w", err)
	var restore *iptables.RestoreError
	if errors.As(err, &restore) && restore.Refused {
		return &dataplane.Refusal{Key: in.keyOf(restore.Line), Err: err}
	}
	return err
}

// tables in the order in which kube-proxy writes them.
var tables = []string{"nat", "filter", "mangle"}

// restoreText is the input of one iptables-restore.
type restoreText struct {
	buf    bytes.Buffer
	keys   []dataplane.Key // of each line
	effect iptables.Effect
}

// keyOf returns the object that a line is about, counted from 1.
func (in *restoreText) keyOf(line int) dataplane.Key {
	if line < 1 || line > len(in.keys) {
		return dataplane.Key{}
	}
	return in.keys[line-1]
}

func (in *restoreText) put(k dataplane.Key, parts ...string) {
	in.keys = append(in.keys, k)
	for _, p := range parts {
		in.buf.WriteString(p)
	}
	in.buf.WriteByte('\n')
}

// table writes what one pass does to a table.
func (in *restoreText) table(name string, changes []dataplane.Change, half pass) {
	var mine []dataplane.Change
	for _, c := range changes {
		if tableOf(c.Container) == name && takesPart(c, half) {
			mine = append(mine, c)
		}
	}
	if len(mine) == 0 {
		return
	}
	in.put(dataplane.Key{}, "*", name)
	for _, c := range mine {
		if !c.Keyed {
			in.put(dataplane.Key{Container: c.Container}, ":", chainOf(c.Container), " - [0:0]")
		}
	}
	for _, c := range mine {
		switch {
		case c.Keyed:
			in.shared(c, half)
		case half == goes && c.Remove:
		default:
			for _, o := range linesOf(c, half) {
				in.put(o.Key, "-A ", chainOf(c.Container), " ", o.Body)
			}
		}
	}
	for _, c := range mine {
		if c.Remove {
			in.put(dataplane.Key{Container: c.Container}, "-X ", chainOf(c.Container))
		}
	}
	in.put(dataplane.Key{}, "COMMIT")
	in.effect.Commits++
	if in.effect.Entries == nil {
		in.effect.Entries = map[string]int{}
	}
	for _, c := range mine {
		in.effect.Entries[name] += grows(c, half)
	}
}

// takesPart tells whether a pass changes anything in a chain.
func takesPart(c dataplane.Change, half pass) bool {
	if half == comes {
		return !c.Remove && (!c.Exists || len(c.Created)+len(c.Replaced) > 0)
	}
	return c.Remove || len(c.Deleted) > 0
}

// linesOf is the content of a chain after a pass. In between, what is to go is still
// there.
func linesOf(c dataplane.Change, half pass) []dataplane.Object {
	if half == goes || len(c.Deleted) == 0 {
		return c.Lines
	}
	out := append(slices.Clone(c.Lines), c.Deleted...)
	slices.SortStableFunc(out, func(a, b dataplane.Object) int {
		return cmp.Or(cmp.Compare(a.Key.Rank, b.Key.Rank), strings.Compare(a.Key.Name, b.Key.Name))
	})
	return out
}

// shared writes jumps, each before everybody else's rules, in the order of their
// names.
func (in *restoreText) shared(c dataplane.Change, half pass) {
	name := chainOf(c.Container)
	if half == goes {
		for _, o := range c.Deleted {
			in.put(o.Key, "-D ", name, " ", o.Body)
		}
		return
	}
	for _, r := range c.Replaced {
		in.put(r.Old.Key, "-D ", name, " ", r.Old.Body)
	}
	created := slices.Clone(c.Created)
	for _, r := range c.Replaced {
		created = append(created, r.New)
	}
	slices.SortFunc(created, func(a, b dataplane.Object) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	for _, o := range created {
		in.put(o.Key, "-I ", name, " ", o.Body)
	}
}

// grows is by how many entries a chain grows in a pass: a rule is one, a chain two.
func grows(c dataplane.Change, half pass) int {
	if half == goes {
		n := -len(c.Deleted)
		if c.Remove {
			n -= 2
		}
		return n
	}
	n := len(c.Created)
	if !c.Exists && !c.Keyed {
		n += 2
	}
	return n
}
