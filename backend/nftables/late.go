package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// removeAfter is for how long what waits is gathered, so that many changes have one
// removal. Then it waits until the packets have gone by that still need it: one that
// is on its way through a chain while it is switched would lose its SYN.
const removeAfter = 100 * time.Millisecond

// waiting is what waits to be removed.
type waiting struct {
	atoms  map[atomID]string // with the data that the kernel has
	sets   map[string]bool
	chains map[string]bool
	// closed are cluster IPs that wait to be added, of which other ports are refused
	// then: a packet that was not translated yet must not find them.
	closed map[string]bool
	stale  staleClients
}

// atomID is what one object asks for in one set: often the endpoints of one
// frontend.
type atomID struct{ set, name string }

func newWaiting() waiting {
	return waiting{atoms: map[atomID]string{}, sets: map[string]bool{}, chains: map[string]bool{}, closed: map[string]bool{}, stale: staleClients{}}
}

func (w *waiting) empty() bool {
	return len(w.atoms)+len(w.sets)+len(w.chains)+len(w.closed)+len(w.stale) == 0
}

func (w *waiting) add(more waiting) {
	maps.Copy(w.atoms, more.atoms)
	maps.Copy(w.sets, more.sets)
	maps.Copy(w.chains, more.chains)
	maps.Copy(w.closed, more.closed)
	w.stale.add(more.stale)
}

// removals are gathered until a timer rings. Then what is young grows old, and goes
// when the packets of before have gone by. So what comes all the time delays nothing.
type removals struct {
	young, old waiting
	timer      *time.Timer
	failures   int // in a row
}

func newRemovals() removals { return removals{young: newWaiting(), old: newWaiting()} }

func (r *removals) empty() bool { return r.young.empty() && r.old.empty() }

func (r *removals) both() [2]*waiting { return [...]*waiting{&r.young, &r.old} }

// atom, set, chain and closing tell whether something waits.

func (r *removals) atom(id atomID) (data string, waits bool) {
	if data, waits = r.young.atoms[id]; !waits {
		data, waits = r.old.atoms[id]
	}
	return data, waits
}

func (r *removals) set(name string) bool     { return r.young.sets[name] || r.old.sets[name] }
func (r *removals) chain(name string) bool   { return r.young.chains[name] || r.old.chains[name] }
func (r *removals) closing(addr string) bool { return r.young.closed[addr] || r.old.closed[addr] }

// keepAtom, keepSet, keepChain, keepOpen and keepClients have what is wanted again, or is
// gone already, wait no more.

func (r *removals) keepAtom(id atomID) {
	for _, w := range r.both() {
		delete(w.atoms, id)
	}
}

func (r *removals) keepSet(name string) {
	for _, w := range r.both() {
		delete(w.sets, name)
	}
}

func (r *removals) keepChain(name string) {
	for _, w := range r.both() {
		delete(w.chains, name)
	}
}

func (r *removals) keepOpen(addr string) {
	for _, w := range r.both() {
		delete(w.closed, addr)
	}
}

// nothingCloses: the addresses that wait come with all that is wanted, and no others.
func (r *removals) nothingCloses() {
	for _, w := range r.both() {
		clear(w.closed)
	}
}

// keepClients has a scope that was gone remember clients again.
func (r *removals) keepClients(scope uint32) {
	for _, w := range r.both() {
		if w.stale[scope].gone {
			delete(w.stale, scope)
		}
	}
}

// keepSeen has what is not in the kernel any more wait no longer, and takes over the data
// that the rest has there.
func (r *removals) keepSeen(seen waiting) {
	for _, w := range r.both() {
		maps.DeleteFunc(w.atoms, func(id atomID, _ string) bool { _, is := seen.atoms[id]; return !is })
		maps.DeleteFunc(w.sets, func(name string, _ bool) bool { return !seen.sets[name] })
		maps.DeleteFunc(w.chains, func(name string, _ bool) bool { return !seen.chains[name] })
		for id, data := range seen.atoms {
			if _, is := w.atoms[id]; is {
				w.atoms[id] = data
			}
		}
	}
}

// schedule has the timer run while something waits.
func (b *Backend) schedule() {
	if b.late.timer == nil && !b.late.empty() {
		b.late.timer = time.AfterFunc(b.removeAfter, b.ring)
	}
}

// unschedule stops the timer; ring, if it runs already, sees that.
func (b *Backend) unschedule() {
	if b.late.timer != nil {
		b.late.timer.Stop()
		b.late.timer = nil
	}
}

// ring is what the timer does.
func (b *Backend) ring() {
	if !b.age() {
		return
	}
	nft.WaitForPackets()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late.timer == nil {
		return // stopped meanwhile
	}
	b.unschedule()
	due := b.late.old
	b.late.old = newWaiting()
	if err := b.remove(context.Background(), due); err != nil && b.options.Trouble != nil {
		b.options.Trouble(err)
	}
	b.schedule()
}

// age makes old what is young; false when there is no timer any more.
func (b *Backend) age() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late.timer == nil {
		return false
	}
	b.late.old.add(b.late.young)
	b.late.young = newWaiting()
	return true
}

// Settle removes what waits for it as soon as may be.
func (b *Backend) Settle(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	due := b.late.old
	due.add(b.late.young)
	b.late.young, b.late.old = newWaiting(), newWaiting()
	if !due.empty() {
		nft.WaitForPackets()
	}
	return b.remove(ctx, due)
}

// remove removes what is due. After an error the table is to be looked at: Changes
// says so, later each time.
func (b *Backend) remove(ctx context.Context, due waiting) error {
	if due.empty() {
		return nil
	}
	err := errors.Join(b.removeObjects(ctx, due), b.forget(due.stale))
	if err == nil {
		b.late.failures = 0
		for id := range due.atoms {
			if leadsByNumber(id.set) {
				b.ids.drop(id.name)
			}
		}
		b.dropScopes(due.stale)
		return nil
	}
	b.late.failures++
	b.doubtful = true
	b.replace = b.replace || b.late.failures > 1 // others made of it what cannot go by itself
	time.AfterFunc(min(time.Second<<min(b.late.failures, 6), time.Minute), b.lookAgain)
	return fmt.Errorf("nftables: remove what is not used any more: %w", err)
}

// lookAgain sends on Changes.
func (b *Backend) lookAgain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notices != nil {
		dataplane.Tell(b.notices, dataplane.Notice{})
	}
}

// removeObjects deletes elements, then chains, then the maps that they looked into.
func (b *Backend) removeObjects(ctx context.Context, due waiting) error {
	ranges, err := b.rangesOf(due)
	if err != nil {
		return err
	}
	moved, err := b.moveRanges(exchanged{gone: ranges}, 0)
	if err != nil {
		return err
	}
	batch := nft.NewBatch(b.table)
	for id, data := range due.atoms {
		if due.sets[id.set] && !leadsByNumber(id.set) || id.set == sources && moved {
			continue // goes with the map, which holds no chain
		}
		s, _ := shapeOf(id.set)
		b.reader.reset()
		list, err := b.reader.elementsOf(id.set, s, id.name, data)
		if err != nil && (len(list) == 0 || list[0].Key == nil) {
			return err
		}
		if err := b.commitFull(ctx, batch); err != nil {
			return err
		}
		for _, e := range list {
			batch.DeleteElement(id.set, e, 0)
		}
	}
	for addr := range due.closed {
		b.reader.reset()
		list, err := b.reader.elementsOf(clusterIPs, shapes[clusterIPs], addr, "")
		if err != nil {
			return err
		}
		if err := b.commitFull(ctx, batch); err != nil {
			return err
		}
		batch.AddElement(clusterIPs, list[0], 0)
	}
	// Chains with marks lead to those that balance: first they lose their rules.
	names := slices.SortedFunc(maps.Keys(due.chains), strings.Compare)
	for _, name := range names {
		batch.FlushChain(name, 0)
	}
	for _, name := range names {
		batch.DeleteChain(name, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(due.sets)) {
		batch.DeleteSet(name, 0)
	}
	return b.options.Conn.Commit(batch)
}

// commitFull has the kernel take a batch that is full, and empties it.
func (b *Backend) commitFull(ctx context.Context, batch *nft.Batch) error {
	if batch.Len() < b.batchLimit {
		return nil
	}
	if err := errors.Join(ctx.Err(), b.options.Conn.Commit(batch)); err != nil {
		return err
	}
	batch.Reset()
	return nil
}
