package iptables

import (
	"bufio"
	"cmp"
	"slices"
	"strings"

	"portolan/dataplane"
)

// Text returns the iptables-restore input that loads objects, of one family,
// where nothing of them is there yet: what a first start writes.
func Text(objects []dataplane.Object) string {
	var w dataplane.Want
	w.Set(dataplane.Owner{}, objects)
	return PlanText(w.Plan(func(string) bool { return false }))
}

// PlanText returns the iptables-restore input that writes a plan. It is what
// Apply feeds to the program, but that Apply puts many new chains before it in
// sections of their own where that is faster.
func PlanText(p dataplane.Plan) string {
	var text strings.Builder
	in := restoreText{out: bufio.NewWriter(&text)}
	in.write(p)
	_ = in.out.Flush() // a Builder takes everything
	return text.String()
}

// restoreText writes a plan as iptables-restore reads it. Each table takes effect at
// its own COMMIT, so where a plan touches both, filter is written in two steps
// around nat; see twoSteps.
type restoreText struct {
	out      *bufio.Writer // nil to count, and to look for a line
	line     int           // number of the next line, from 1
	lookFor  int           // a line whose key is wanted, 0 for none
	found    dataplane.Key
	sections int
	// doubtful: a section only takes away; see iptables.Effect.
	doubtful bool
	// batch is how many new chains go into one section; 0 for all. See prepare.
	batch int
}

// write words a plan: filter ahead of nat and behind it where both change (ADR 3).
func (in *restoreText) write(p dataplane.Plan) {
	in.line = 1
	filter, nat, mangle := tableChanges(p, "filter"), tableChanges(p, "nat"), tableChanges(p, "mangle")
	nat = in.prepare(nat)
	first, last := filter, []dataplane.Change(nil)
	if len(nat) > 0 {
		first, last = turnsOf(nat).twoSteps(filter)
	}
	in.table("filter", first)
	in.table("nat", nat)
	in.table("filter", last)
	in.table("mangle", mangle)
}

// keyOf returns the object that a line of the input is about.
func keyOf(p dataplane.Plan, batch, line int) dataplane.Key {
	in := restoreText{lookFor: line, batch: batch}
	in.write(p)
	return in.found
}

func tableChanges(p dataplane.Plan, table string) []dataplane.Change {
	from, _ := slices.BinarySearchFunc(p.Changes, table+"/", compareContainer)
	to, _ := slices.BinarySearchFunc(p.Changes, table+"0", compareContainer) // '0' follows '/'
	return p.Changes[from:to]
}

func compareContainer(c dataplane.Change, name string) int { return cmp.Compare(c.Container, name) }

// table words what changes in one table: chains are declared, which empties them, before any
// rule leads there.
func (in *restoreText) table(name string, changes []dataplane.Change) {
	if len(changes) == 0 {
		return
	}
	in.put(dataplane.Key{}, "*", name)
	in.declare(changes)
	for _, c := range changes {
		if !c.Keyed && !c.Remove {
			chain := chainOf(c.Container)
			for _, o := range c.Lines {
				in.put(o.Key, "-A ", chain, " ", o.Body)
			}
		}
	}
	for _, c := range changes {
		if c.Keyed {
			in.shared(c)
		}
	}
	for _, c := range changes {
		if c.Remove {
			in.put(dataplane.Key{Container: c.Container}, "-X ", chainOf(c.Container))
		}
	}
	in.put(dataplane.Key{}, "COMMIT")
	in.sections++
	in.doubtful = in.doubtful || !slices.ContainsFunc(changes, adds)
}

// adds tells whether a change of a chain writes a rule or makes the chain.
func adds(c dataplane.Change) bool {
	if c.Keyed {
		return !c.Exists || len(c.Created)+len(c.Replaced) > 0
	}
	return !c.Remove && (!c.Exists || len(c.Lines) > 0)
}

// declare makes chains, or empties those that are there. The programs keep
// chains in sorted lists that they search from the front: in reverse order a
// legacy restore of 10,000 Services was 1.6 times faster, one of nft 3 times.
func (in *restoreText) declare(changes []dataplane.Change) {
	for _, c := range slices.Backward(changes) {
		if !c.Keyed {
			in.put(dataplane.Key{Container: c.Container}, ":", chainOf(c.Container), " - [0:0]")
		}
	}
	for _, c := range changes {
		if c.Keyed && !c.Exists && c.Container == filterFirewall {
			// Not declared, since that would empty it if kubelet was faster.
			in.put(dataplane.Key{Container: c.Container}, "-N ", chainOf(c.Container))
		}
	}
}

// shared writes single lines: jumps are put before everybody else's, in the
// order of their names; kubelet's chain is added to.
func (in *restoreText) shared(c dataplane.Change) {
	chain := chainOf(c.Container)
	for _, o := range c.Deleted {
		in.put(o.Key, "-D ", chain, " ", o.Body)
	}
	created := slices.Clone(c.Created)
	for _, r := range c.Replaced {
		in.put(r.Old.Key, "-D ", chain, " ", r.Old.Body)
		created = append(created, r.New)
	}
	slices.SortFunc(created, func(a, b dataplane.Object) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	for _, o := range created {
		if c.Container == filterFirewall {
			in.put(o.Key, "-A ", chain, " ", o.Body)
		} else {
			in.put(o.Key, "-I ", chain, " ", o.Body)
		}
	}
}

// put writes a line, or only counts it to find the object that a line is about.
func (in *restoreText) put(k dataplane.Key, parts ...string) {
	if in.line == in.lookFor {
		in.found = k
	}
	in.line++
	if in.out == nil {
		return
	}
	for _, p := range parts {
		in.out.WriteString(p) // the first error comes back from Flush
	}
	in.out.WriteByte('\n')
}
