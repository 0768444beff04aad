package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// batchLimit is about how many changes go into one transaction. What a plan
// changes of a single Service is always in one.
const batchLimit = 20_000

// firstLimit is that of a first write, to a kernel without our table, where no Service
// has anything yet that could be changed by halves. The kernel goes through the elements of
// a transaction several times; 2,000 stay in the cache of a processor. A load of 10,000
// Services of 10 endpoints takes 0.25 s with it, 0.27 with 5,000 and 0.33 with 20,000.
const firstLimit = 2_000

// Apply writes the plan: what comes and what changes at once, in one transaction
// unless there is very much of it or one part has to wait for another (see
// stages), and in an order in which every transaction leaves good rules. What a
// packet may still need that is on its way is removed a little later, in a
// transaction of its own. A change that the kernel refuses comes back as a
// *dataplane.Refusal that names it.
func (b *Backend) Apply(ctx context.Context, p dataplane.Plan) error {
	defer b.hearAgain()
	b.mu.Lock()
	defer b.mu.Unlock()
	u := update{b: b, ctx: ctx, batch: nft.NewBatch(b.table), spare: nft.NewBatch(b.table), limit: b.batchLimit, fresh: b.fresh}
	b.fresh = false
	if err := u.sort(p); err != nil {
		return err
	}
	stale := b.staleClients(p, u.fresh)
	b.scoped = nil
	doubtful := b.doubtful
	b.doubtful = true // until they are forgotten
	if err := u.write(); err != nil {
		return err
	}
	b.rebuild, b.replace, b.misfits = false, false, 0
	if err := b.forget(stale); err != nil {
		return err
	}
	b.doubtful = doubtful
	u.late.stale = stale
	b.late.young.add(u.late)
	b.schedule()
	return nil
}

// update is one Apply.
type update struct {
	b     *Backend
	ctx   context.Context
	batch *nft.Batch       // that is filled
	spare *nft.Batch       // that the kernel is at while there is something in sent
	sent  chan error       // what it says; nil when there is nothing to wait for
	keys  []*dataplane.Key // by tag
	limit int
	fresh bool // the plan was made from an observation

	sets   []dataplane.Object
	chains []dataplane.Change
	steps  [stages][steps][]step
	closes bool   // see closesNow
	begins bool   // some frontend is served that was not
	object []step // of the one that is being sorted
	named  map[string]*target
	moved  bool // see moveRanges
	staged bool // there is something of a stage in the batch, or was
	late   waiting
}

// step is what happens to one atom: it comes, goes, or has other data. At first there
// are some for each Service.
type step struct {
	key *dataplane.Key // of the object that it is part of
	*target
	old, new   string
	goes, come bool // there is an old one, a new one
}

// target is the set that steps are about.
type target struct {
	set   string
	shape *shape
}

// sort takes the plan apart. What waits for its removal and is wanted again
// waits no more.
func (u *update) sort(p dataplane.Plan) error {
	u.late = newWaiting()
	u.closes = u.closesNow(p)
	for _, c := range p.Changes {
		name, isChain := strings.CutPrefix(c.Container, chainPrefix)
		switch {
		case isChain && c.Remove:
			u.late.chains[name] = true
		case isChain:
			c.Exists = c.Exists || u.b.late.chain(name)
			u.b.late.keepChain(name)
			u.chains = append(u.chains, c)
		case c.Container == setsContainer:
			if !c.Exists {
				u.limit = u.b.firstLimit
			}
			if err := u.sortSets(c); err != nil {
				return err
			}
		default:
			u.sortElements(c)
		}
	}
	if u.b.rebuild {
		u.b.unschedule()
		u.b.late = newRemovals()
		u.limit = 1 << 30
	}
	return nil
}

// sortSets takes up the declarations that come and go.
func (u *update) sortSets(c dataplane.Change) error {
	if len(c.Replaced) > 0 {
		// A set cannot change its shape while rules look into it. The next
		// observation finds nothing, so that the next plan is the whole table.
		u.b.replace = true
		return fmt.Errorf("nftables: apply: set %s is there in another shape; the table will be replaced", c.Replaced[0].New.Key.Name)
	}
	for _, o := range c.Created {
		if u.b.late.set(o.Key.Name) {
			u.b.late.keepSet(o.Key.Name)
			continue
		}
		u.sets = append(u.sets, o)
	}
	// A listing has them as they came, and is to be the same for the same Services.
	slices.SortFunc(u.sets, func(a, b dataplane.Object) int { return a.Key.Compare(b.Key) })
	for _, o := range c.Deleted {
		u.late.sets[o.Key.Name] = true
	}
	return nil
}

// write has the kernel take what was sorted: sets and chains first, then the elements,
// stage after stage, in batches that the kernel works on while the next is filled. A
// table that is replaced as a whole is one batch.
func (u *update) write() error {
	u.makeRoom() // before the kernel is at one of the batches
	if u.b.rebuild {
		u.batch.DeleteTable(u.tag(dataplane.Key{}))
	}
	if u.b.rebuild || len(u.sets) > 0 || len(u.chains) > 0 {
		u.batch.AddTable(u.tag(dataplane.Key{}))
	}
	for _, o := range u.sets {
		s, _ := shapeOf(o.Key.Name)
		u.batch.AddSet(u.b.words.setOf(o.Key.Name, s), u.tag(o.Key))
	}
	if err := u.writeChains(); err != nil {
		return err
	}
	// A packet keeps the rules that it began with, but sees new elements: what leads
	// to a new chain comes after it. Elements of other Services wait too, so that none
	// changes by halves.
	if !u.b.rebuild && slices.ContainsFunc(u.chains, isNew) {
		if err := u.send(); err != nil {
			return err
		}
	}
	for s := range u.steps {
		if err := u.writeStage(&u.steps[s]); err != nil {
			return errors.Join(err, u.taken())
		}
	}
	if err := errors.Join(u.taken(), u.ctx.Err()); err != nil {
		return err
	}
	return u.answer(u.b.options.Conn.Commit(u.batch))
}

// makeRoom has memory for what is to be written: what grows by itself leaves several
// times as much behind.
func (u *update) makeRoom() {
	n := 0
	for _, stage := range u.steps {
		for _, list := range stage {
			n += len(list)
		}
	}
	u.keys = slices.Grow(u.keys, n)
	if n >= u.b.batchLimit {
		u.batch.Grow(u.b.batchLimit)
		u.spare.Grow(u.b.batchLimit)
	}
}

// writeStage adds to the batch what comes after the stage before has been written.
func (u *update) writeStage(list *[steps][]step) error {
	if u.staged && !isEmpty(list) && !u.b.rebuild {
		if err := errors.Join(u.send(), u.taken()); err != nil {
			return err
		}
		nft.WaitForPackets()
	}
	u.staged = u.staged || !isEmpty(list)
	if err := u.moveRanges(list); err != nil {
		return err
	}
	for at := range list {
		for _, s := range list[at] {
			if u.batch.Len() >= u.limit {
				if err := u.send(); err != nil {
					return err
				}
			}
			if err := u.writeElements(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// worthAnother is from how many changes on it takes less time to have another thread wait
// for the kernel than to wait.
const worthAnother = 1000

// send has the kernel take the batch while the next is filled.
func (u *update) send() error {
	if err := errors.Join(u.taken(), u.ctx.Err()); err != nil {
		return err
	}
	if u.batch.Len() < worthAnother {
		err := u.answer(u.b.options.Conn.Commit(u.batch))
		u.batch.Reset()
		return err
	}
	u.batch, u.spare = u.spare, u.batch
	u.batch.Reset()
	sent := make(chan error, 1)
	go func() { sent <- u.b.options.Conn.Commit(u.spare) }()
	u.sent = sent
	return nil
}

// taken waits until the kernel has taken what was sent.
func (u *update) taken() error {
	if u.sent == nil {
		return nil
	}
	err := <-u.sent
	u.sent = nil
	return u.answer(err)
}

func isNew(c dataplane.Change) bool { return !c.Exists }

// isHook tells the first line of a base chain.
func isHook(o dataplane.Object) bool { return strings.HasPrefix(o.Body, "type ") }

// writeChains makes all new chains first, since rules lead from one to another.
func (u *update) writeChains() error {
	rules := make([][]dataplane.Object, len(u.chains))
	for i, c := range u.chains {
		name := strings.TrimPrefix(c.Container, chainPrefix)
		tag := u.tag(dataplane.Key{Container: c.Container})
		chain := nft.Chain{Name: name}
		rules[i] = c.Lines
		if len(c.Lines) > 0 && isHook(c.Lines[0]) {
			var err error
			if chain, err = parseHook(name, c.Lines[0].Body); err != nil {
				return &dataplane.Refusal{Key: c.Lines[0].Key, Err: err}
			}
			rules[i] = c.Lines[1:]
		}
		switch {
		case c.Exists && chain.Type != "": // a hook cannot be changed, and nothing leads to it
			u.batch.DeleteChain(name, ^tag)
			u.batch.AddChain(chain, tag)
		case c.Exists && slices.ContainsFunc(c.Deleted, isHook): // others made it, and we may lead to it
			u.b.replace = true
			return fmt.Errorf("nftables: apply: chain %s is there with a hook; the table will be replaced", name)
		case c.Exists:
			u.batch.FlushChain(name, tag)
		default:
			u.batch.AddChain(chain, tag)
		}
	}
	for i, c := range u.chains {
		for _, o := range rules[i] {
			r, err := u.b.words.rule(strings.TrimPrefix(c.Container, chainPrefix), o.Body)
			if err != nil {
				return &dataplane.Refusal{Key: o.Key, Err: err}
			}
			u.batch.AddRule(r, u.tag(o.Key))
		}
	}
	return nil
}

// writeElements adds the elements of one step to the batch: of an atom that changed those
// that differ.
func (u *update) writeElements(s step) error {
	if s.set == sources && u.moved {
		return nil
	}
	u.b.reader.reset()
	if s.goes && s.come && s.shape.isSlots() {
		if gone, come, ok := u.b.reader.slotDifference(s.shape, s.key.Name, s.old, s.new); ok {
			u.exchange(s, gone, come)
			return nil
		}
	}
	old, now, err := u.elements(s)
	if err != nil {
		return err
	}
	gone, come := old, now
	if s.goes {
		gone, come = difference(old, now)
	}
	u.exchange(s, gone, come)
	return nil
}

// elements are those that were and that are to be.
func (u *update) elements(s step) (old, now []nft.Element, err error) {
	if s.come {
		if now, err = u.b.reader.elementsOf(s.set, s.shape, s.key.Name, s.new); err != nil {
			return nil, nil, &dataplane.Refusal{Key: *s.key, Err: err}
		}
	}
	if s.goes {
		old, err = u.b.reader.elementsOf(s.set, s.shape, s.key.Name, s.old)
		if err != nil && (len(old) == 0 || old[0].Key == nil) {
			u.b.replace = true // what cannot be named cannot be removed by itself
			return nil, nil, fmt.Errorf("%w; the table will be replaced", err)
		}
	}
	return old, now, nil
}

// exchange removes elements before it adds others, since those may have the same keys.
// The tag of a removal is the complement of that of its object; see misfits.
func (u *update) exchange(s step, gone, come []nft.Element) {
	tag := u.tagOf(s.key)
	for _, e := range gone {
		u.batch.DeleteElement(s.set, e, ^tag)
	}
	for _, e := range come {
		u.batch.AddElement(s.set, e, tag)
	}
}

func (u *update) tag(k dataplane.Key) int { return u.tagOf(&k) }

func (u *update) tagOf(k *dataplane.Key) int {
	u.keys = append(u.keys, k)
	return len(u.keys) - 1
}
