package nftables

import (
	"slices"
	"strings"

	"portolan/dataplane"
)

// The order in which elements change within a stage. The kernel may run what is
// there so far: an address is served before it stops being refused and refused
// before it stops being served, and protected before and after both.
const (
	stepSlots    = iota // nothing leads to new ones
	stepLists           // what others look into
	stepProtect         // source ranges, affinity
	stepRefuse          // no endpoints
	stepServe           // dispatch: comes and changes
	stepUnserve         // dispatch: goes
	stepUnrefuse        // and so on, backwards
	stepUnprotect
	stepUnlist
	steps
)

// stepOf is the step at which an element of a set comes, or changes (stays), or goes.
func stepOf(set string, s *shape, stays bool) int {
	at, last := stepLists, stepUnlist
	switch {
	case s.isSlots():
		return stepSlots
	case isDispatch(set):
		at, last = stepServe, stepUnserve
	case isRefusal(set):
		at, last = stepRefuse, stepUnrefuse
	case set == limited || s.holds == aScope:
		at, last = stepProtect, stepUnprotect
	}
	if stays {
		return at
	}
	return last
}

// isDispatch and isRefusal tell which of the two answers to a frontend a set holds.

func isDispatch(set string) bool { return set == serviceIPs || set == nodePorts }
func isRefusal(set string) bool  { return set == noEndpoints || set == noEndpointNodePorts }

// A packet meets source ranges, dispatch and refusal in this order at three hooks,
// and a transaction may come between two of them: then the later hook has the new
// elements, and the earlier had the old. So what is asked later may come, but not
// change or go, with what is asked earlier; and what protects comes before what it
// protects. Stages are transactions one after the other. Most plans need the last
// alone.
const (
	stageProtect = iota // source ranges of what is served from the next stage on
	stageServe          // what others wait for
	stageLast
	stages
)

// closesNow tells whether a plan made from an observation has addresses come of which
// other ports are refused: then they are there when it has been applied, as with a
// first start, while others wait for the packets beside.
func (u *update) closesNow(p dataplane.Plan) bool {
	return u.fresh && slices.ContainsFunc(p.Changes, func(c dataplane.Change) bool {
		return c.Container == "set/"+clusterIPs && len(c.Created) > 0
	})
}

// sortElements takes up the changes of one container: object by object, each is cut into
// atoms, which make steps, which are placed together.
func (u *update) sortElements(c dataplane.Change) {
	likely := []int{stepLists}
	if c.Container == frontends {
		likely = []int{stepSlots, stepServe}
	}
	stage := stageLast
	if u.closes && c.Container != "set/"+clusterIPs {
		stage = stageServe
	}
	for _, at := range likely {
		u.steps[stage][at] = slices.Grow(u.steps[stage][at], len(c.Created))
	}
	for i := range c.Created {
		o := &c.Created[i]
		for a := range atoms(c.Container, o.Key.Name, o.Body) {
			u.comes(&o.Key, a)
		}
		u.place()
	}
	for i := range c.Replaced {
		u.replaced(c.Container, &c.Replaced[i])
		u.place()
	}
	for i := range c.Deleted {
		o := &c.Deleted[i]
		for a := range atoms(c.Container, o.Key.Name, o.Body) {
			u.goes(&o.Key, a)
		}
		u.place()
	}
}

// replaced changes only the atoms that differ.
func (u *update) replaced(container string, r *dataplane.Replacement) {
	name := r.New.Key.Name
	var room [8]atom
	old := slices.AppendSeq(room[:0], atoms(container, name, r.Old.Body))
	for a := range atoms(container, name, r.New.Body) {
		i := slices.IndexFunc(old, func(o atom) bool { return o.set == a.set })
		if i < 0 {
			u.comes(&r.New.Key, a)
			continue
		}
		if old[i].data != a.data {
			u.step(a.set, step{key: &r.New.Key, old: old[i].data, new: a.data, goes: true, come: true})
		}
		old = slices.Delete(old, i, i+1)
	}
	for _, a := range old {
		u.goes(&r.New.Key, a)
	}
}

// comes adds an atom, unless what it needs is there and waits to be removed.
func (u *update) comes(k *dataplane.Key, a atom) {
	one := step{key: k, new: a.data, come: true}
	if a.set == affinityScopes {
		// By the number that it will have: after a look it may have none yet.
		if id, err := u.b.ids.of(k.Name); err == nil {
			u.b.late.keepClients(id)
		}
	}
	if id := (atomID{a.set, k.Name}); !u.b.late.empty() {
		one.old, one.goes = u.b.late.atom(id)
		u.b.late.keepAtom(id)
	}
	u.step(a.set, one)
}

// goes removes an atom.
func (u *update) goes(k *dataplane.Key, a atom) {
	u.step(a.set, step{key: k, old: a.data, goes: true})
}

// step notes a step about a set for the object that is being sorted.
func (u *update) step(set string, s step) {
	if s.target = u.named[set]; s.target == nil {
		shape, ok := shapeOf(set)
		if !ok {
			panic("nftables: no set is called " + set)
		}
		s.target = &target{set, shape}
		if u.named == nil {
			u.named = map[string]*target{}
		}
		u.named[set] = s.target
	}
	u.object = append(u.object, s)
}

// effect is what the steps of one object mean for the packets to it, where it is a
// frontend. All is false where it is something else.
type effect struct {
	serves   bool // it is served from now on, as before or in another way
	begins   bool // and it was not before
	unserves bool // it was served, and is no more
	guards   bool // it gets source ranges
	unguards bool // it loses them
	refuses  bool // who is not served is refused from now on
	alters   bool // and was before, with another answer
}

// effectOf reads it off the sets that the steps are about.
func effectOf(object []step) (e effect) {
	for _, s := range object {
		switch {
		case isDispatch(s.set):
			e.serves, e.begins, e.unserves = s.come, !s.goes, !s.come
		case s.set == limited:
			e.guards, e.unguards = !s.goes, !s.come
		case isRefusal(s.set):
			e.refuses, e.alters = s.come, s.come && s.goes
		}
	}
	return e
}

// outlives tells whether what a step removes is left for later: packets that the rules
// of before led on may still look there, for their endpoint, their source range, or the
// answer of a frontend that was refused and is served now.
func (e effect) outlives(s step) bool {
	switch {
	case s.come:
		return false
	case s.shape.isSlots(), s.set == hairpin, leadsByNumber(s.set):
		return true
	case s.set == sources:
		return e.unguards
	}
	return isRefusal(s.set) && e.serves
}

// place puts the steps of one object into their stages.
func (u *update) place() {
	defer func() { u.object = u.object[:0] }()
	if len(u.object) == 0 || u.waits(u.object[0]) {
		return
	}
	e := effectOf(u.object)
	u.begins = u.begins || e.begins
	if e.unserves && !e.refuses {
		u.unrefuse(u.object[0].key)
	}
	// Most is done in the last stage. What is served goes ahead where its answer as a
	// refused one changes too, and where other ports of its address are refused from the
	// last stage on; lists go with whatever is ahead and may look into them.
	serve := stageLast
	if e.serves && e.alters || e.begins && u.closes || u.isList() && !isEmpty(&u.steps[stageServe]) {
		serve = stageServe
	}
	for _, s := range u.object {
		stage := serve
		switch {
		case e.outlives(s):
			u.late.atoms[atomID{s.set, s.key.Name}] = s.old
			continue
		case isRefusal(s.set) && e.serves:
			stage = stageLast
		case (s.set == limited || s.set == sources) && e.guards && e.serves:
			stage-- // guarded before it is served
		}
		at := stepOf(s.set, s.shape, s.come)
		u.steps[stage][at] = append(u.steps[stage][at], s)
	}
}

// waits tells whether a step is about a cluster IP that other ports wait to be refused
// for: it may be new, and a packet that was not translated yet must not find it.
func (u *update) waits(s step) bool {
	switch {
	case s.set != clusterIPs:
		return false
	case s.come && u.begins && !u.fresh:
		u.late.closed[s.key.Name] = true
		return true
	case s.come: // others may have taken the table away while it waited
		u.b.late.keepOpen(s.key.Name)
	case !s.come && u.b.late.closing(s.key.Name):
		u.b.late.keepOpen(s.key.Name)
		return true
	}
	return false
}

// isList tells whether the object is something that others look into.
func (u *update) isList() bool {
	set := u.object[0].set
	return set == hairpin || leadsByNumber(set) || strings.HasSuffix(set, portsSuffix)
}

// unrefuse removes the refusal of a frontend that was served, and is no more, if it
// still waits for that.
func (u *update) unrefuse(k *dataplane.Key) {
	id := atomID{refusalSet(isNodePort(k.Name)), k.Name}
	if verdict, waits := u.b.late.atom(id); waits {
		u.b.late.keepAtom(id)
		u.goes(k, atom{id.set, verdict})
	}
}

func isEmpty(stage *[steps][]step) bool {
	return !slices.ContainsFunc(stage[:], func(list []step) bool { return len(list) > 0 })
}
