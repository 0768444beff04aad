package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"portolan/kernel/nft"
)

// Watch tells what others do to the tables of the network namespace in which it
// was opened, from what is done through Write. All who write there in one
// process share one. It may be used by several goroutines.
//
// It cannot see:
//   - which family or table others wrote to with nft: each family hears of it;
//   - a legacy rule of others that was exchanged for one of the same size;
//   - of what others do to legacy tables while a Write is under way, what leaves
//     the number of entries as it is, for example a rule in the place of another;
//   - what others do while a Write is under way that fails. Whoever gets the
//     error has to look at the tables anyway.
type Watch struct {
	mu        sync.Mutex // guards what the views and followers hold
	views     map[Family]*view
	followers map[Family]*follower
}

// Change is what others did.
type Change struct {
	Some bool // they did something, or may have
	// Doubt: if Some is false, they may have emptied chains all the same, while chains
	// were emptied or a write failed. What is left of the tables tells.
	Doubt bool
	// Lost tells whether a built-in chain has lost a rule, of anybody. Only with
	// legacy tables that is known.
	Lost bool
	// Program is the first 15 bytes of the name of the last program that did it, if
	// the kernel tells, as it does with nft.
	Program string
}

// follower is who hears of changes of one family.
type follower struct {
	change  Change // since the last call of Changed
	signal  chan struct{}
	writing int // writes of this family under way
}

// lookEvery is how often legacy tables are looked at: nobody tells of their changes.
const lookEvery = 400 * time.Millisecond

// Effect is what a restore does to the tables if they hold what its writer
// believes, and it succeeds.
type Effect struct {
	// Commits is the number of sections, each of which changes something.
	Commits int
	// Entries is by how many entries each table grows: a rule is one, a chain
	// that comes two, and what goes counts less.
	Entries map[string]int
	// Doubtful: some section only takes away. Where somebody else was faster it changes
	// nothing, and nft does not count it, so that the numbers come out even.
	Doubtful bool
}

// NewWatch opens a Watch for the families and variants of tools.
func NewWatch(tools ...*Tool) (*Watch, error) {
	w := &Watch{views: map[Family]*view{}, followers: map[Family]*follower{}}
	var shared *view
	for _, t := range tools {
		v := shared
		if v == nil || t.Variant != NFT {
			var err error
			if v, err = openView(t.Family, t.Variant); err != nil {
				return nil, errors.Join(err, w.Close())
			}
		}
		if t.Variant == NFT {
			shared = v
		}
		f := &follower{signal: make(chan struct{}, 1)}
		w.views[t.Family], w.followers[t.Family] = v, f
		v.followers = append(v.followers, f)
	}
	return w, nil
}

// Close ends the watch. Run has to be over.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, v := range w.distinct() {
		errs = append(errs, v.eye.close())
	}
	w.views = nil
	return errors.Join(errs...)
}

func (w *Watch) distinct() (out []*view) {
	for _, v := range w.views {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// Run watches until ctx ends, and lets News know.
func (w *Watch) Run(ctx context.Context) {
	var wg sync.WaitGroup
	var poll []*view
	for _, v := range w.distinct() {
		if v.eye.variant == NFT {
			wg.Go(func() { w.hear(ctx, v) })
		} else {
			poll = append(poll, v)
		}
	}
	w.poll(ctx, poll)
	wg.Wait()
}

// hear looks whenever the kernel tells that somebody committed something.
func (w *Watch) hear(ctx context.Context, v *view) {
	for {
		heard, err := v.eye.commits.Commit(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.poll(ctx, []*view{v})
			return
		}
		w.look(v, heard.Program)
	}
}

// poll looks at legacy tables from time to time: they notify nobody.
func (w *Watch) poll(ctx context.Context, views []*view) {
	if len(views) == 0 {
		return
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, v := range views {
				w.look(v, "")
			}
		}
	}
}

func (w *Watch) look(v *view, program string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v.look(program) != nil {
		v.signal() // Changed will say why
	}
}

// News receives when Changed has something to say about a family: what others did,
// or an error. It never does for a family that is not watched.
func (w *Watch) News(f Family) <-chan struct{} {
	if follower := w.followers[f]; follower != nil {
		return follower.signal
	}
	return nil
}

// Write has write change the tables of a family, and returns its error.
func (w *Watch) Write(f Family, e Effect, write func() error) error {
	w.with(f, func(v *view, f *follower) { f.writing++; v.begin() })
	err := write()
	w.with(f, func(v *view, f *follower) {
		f.writing--
		v.end(e, err)
		if v.eye.variant != NFT {
			return
		}
		for _, other := range v.followers {
			other.change.Doubt = other.change.Doubt || e.Doubtful || err != nil
			if other.change.Doubt {
				other.hear()
			}
		}
	})
	return err
}

// Doubt has Changed say again that it is not sure, at the end of the Write under way if
// there is one.
func (w *Watch) Doubt(f Family) {
	w.with(f, func(_ *view, f *follower) {
		f.change.Doubt = true
		if f.writing == 0 {
			f.hear()
		}
	})
}

// with tells whether the family is watched.
func (w *Watch) with(f Family, do func(*view, *follower)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.views[f]
	if v != nil {
		do(v, w.followers[f])
	}
	return v != nil
}

// Changed tells what others did to the tables of the family since the last call,
// or may have done. While a Write is under way it says what was known before; what
// happens meanwhile comes out after its end. With an error nothing is known.
func (w *Watch) Changed(f Family) (change Change, err error) {
	watched := w.with(f, func(v *view, f *follower) {
		if err = v.look(""); err == nil {
			change, f.change = f.change, Change{}
		}
	})
	if !watched {
		return Change{}, fmt.Errorf("iptables: watch: tables of IPv%d are not watched", f)
	}
	return change, err
}

// Between calls look, with a socket of nft in the namespace of the Watch, while
// this process writes nothing to the tables of the family: Write waits for it. It
// does not when a Write is under way, which it tells, or with legacy tables.
func (w *Watch) Between(f Family, look func(*nft.Conn)) (busy bool) {
	w.with(f, func(v *view, f *follower) {
		if busy = f.writing > 0; !busy && v.eye.variant == NFT {
			look(v.eye.conn)
		}
	})
	return busy
}

// view is how tables looked last: those of one family with legacy, all with nft.
type view struct {
	eye       *eye
	seen      sight
	followers []*follower
	// writing is the number of writes under way, wrote what was written since it
	// was 0.
	writing int
	wrote   written
}

// written is what one or more writes did to the tables.
type written struct {
	least, most int // sections
	entries     map[string]int
	failed      bool
}

// openView looks at what is there first, so that only later changes are told.
func openView(f Family, v Variant) (*view, error) {
	e, err := openEye(f, v)
	if err != nil {
		return nil, err
	}
	s, err := e.look()
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return &view{eye: e, seen: s}, nil
}

func (v *view) tell(c Change) {
	for _, f := range v.followers {
		f.change.Some, f.change.Lost = true, f.change.Lost || c.Lost
		if c.Program != "" {
			f.change.Program = c.Program
		}
	}
	v.signal()
}

func (v *view) signal() {
	for _, f := range v.followers {
		f.hear()
	}
}

func (f *follower) hear() {
	select {
	case f.signal <- struct{}{}:
	default: // one waits already
	}
}

// look notes what others did since the last look, program last.
func (v *view) look(program string) error {
	if v.writing > 0 {
		return nil
	}
	now, err := v.eye.look()
	if err == nil && now != v.seen {
		lost := now.lostSince(v.seen)
		v.seen = now
		v.tell(Change{Some: true, Lost: lost, Program: program})
	}
	return err
}

func (v *view) begin() {
	if v.look("") != nil {
		v.tell(Change{Some: true})
	}
	v.writing++
}

// end is told when a write of ours is over. When the last of several is, what is there is
// held against what they explain.
func (v *view) end(e Effect, err error) {
	v.wrote.add(e, err != nil)
	if v.writing--; v.writing > 0 {
		return
	}
	wrote := v.wrote
	v.wrote = written{}
	now, err := v.eye.look()
	if err != nil || !wrote.explains(v.seen, now, v.eye.variant) {
		v.tell(Change{Some: true})
	}
	if err == nil {
		v.seen = now
	}
}

// add counts a write; one that failed may have committed any of its tables or none.
func (w *written) add(e Effect, failed bool) {
	w.most += e.Commits
	if w.failed = w.failed || failed; !failed {
		w.least += e.Commits
	}
	if w.entries == nil {
		w.entries = map[string]int{}
	}
	for table, n := range e.Entries {
		w.entries[table] += n
	}
}

// explains tells whether nobody else had to do anything to get from one sight to
// the other.
func (w written) explains(before, after sight, variant Variant) bool {
	if variant == NFT {
		steps := int(after.nft - before.nft)
		return w.least <= steps && steps <= w.most
	}
	if w.failed {
		return true
	}
	for i, table := range watchedTables {
		if entries(after, i)-entries(before, i) != w.entries[table] {
			return false
		}
	}
	return true
}

func entries(s sight, table int) int {
	if s.legacy[table] == (tableInfo{}) {
		return emptyTable[table]
	}
	return s.legacy[table].entries()
}
