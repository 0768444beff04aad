package iptables

import (
	"errors"
	"fmt"
	"sync"
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
	mu    sync.Mutex // guards the views
	views map[Family]*view
}

// Effect is what a restore does to the tables if they hold what its writer
// believes, and it succeeds.
type Effect struct {
	// Commits is the number of sections, each of which changes something.
	Commits int
	// Entries is by how many entries each table grows: a rule is one, a chain
	// that comes two, and what goes counts less.
	Entries map[string]int
}

// NewWatch opens a Watch for the families and variants of tools.
func NewWatch(tools ...*Tool) (*Watch, error) {
	w := &Watch{views: map[Family]*view{}}
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
		w.views[t.Family] = v
		v.news[t.Family] = false
	}
	return w, nil
}

// Close ends the watch.
func (w *Watch) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	closed := map[*view]bool{}
	for _, v := range w.views {
		if !closed[v] {
			errs = append(errs, v.eye.close())
		}
		closed[v] = true
	}
	w.views = nil
	return errors.Join(errs...)
}

// Write has write change the tables of a family, and returns its error.
func (w *Watch) Write(f Family, e Effect, write func() error) error {
	w.with(f, (*view).begin)
	err := write()
	w.with(f, func(v *view) { v.end(e, err) })
	return err
}

// with tells whether the family is watched.
func (w *Watch) with(f Family, do func(*view)) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.views[f]
	if v != nil {
		do(v)
	}
	return v != nil
}

// Changed tells whether others changed the tables of the family since the last
// call, or may have. While a Write is under way it says what was known before;
// what happens meanwhile comes out with the next call after its end. With an
// error nothing is known.
func (w *Watch) Changed(f Family) (changed bool, err error) {
	watched := w.with(f, func(v *view) {
		if err = v.look(); err == nil {
			changed, v.news[f] = v.news[f], false
		}
	})
	if !watched {
		return false, fmt.Errorf("iptables: watch: tables of IPv%d are not watched", f)
	}
	return changed, err
}

// view is how tables looked last: those of one family with legacy, all with nft.
type view struct {
	eye  *eye
	seen sight
	// news: who has not yet heard of a change by others.
	news map[Family]bool
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

func openView(f Family, v Variant) (*view, error) {
	e, err := openEye(f, v)
	if err != nil {
		return nil, err
	}
	s, err := e.look()
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return &view{eye: e, seen: s, news: map[Family]bool{}}, nil
}

func (v *view) tellAll() {
	for f := range v.news {
		v.news[f] = true
	}
}

// look notes what others did since the last look.
func (v *view) look() error {
	if v.writing > 0 {
		return nil
	}
	now, err := v.eye.look()
	if err == nil && now != v.seen {
		v.seen = now
		v.tellAll()
	}
	return err
}

func (v *view) begin() {
	if v.look() != nil {
		v.tellAll()
	}
	v.writing++
}

func (v *view) end(e Effect, err error) {
	v.wrote.add(e, err != nil)
	if v.writing--; v.writing > 0 {
		return
	}
	wrote := v.wrote
	v.wrote = written{}
	now, err := v.eye.look()
	if err != nil || !wrote.explains(v.seen, now, v.eye.variant) {
		v.tellAll()
	}
	if err == nil {
		v.seen = now
	}
}

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
