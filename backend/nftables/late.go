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

// removeAfter is how long what nothing leads to any more stays at least, and half of
// how long at most. A packet that is on its way through a chain while it is switched
// would lose its SYN without it, and on a busy machine that is on its way for long.
const removeAfter = 500 * time.Millisecond

// waiting is what waits to be removed.
type waiting struct {
	slots  map[slotID]string // with the endpoints that the kernel has
	sets   map[string]bool
	chains map[string]bool
	stale  staleClients
}

// slotID is the endpoints of one frontend in one map.
type slotID struct{ set, frontend string }

func newWaiting() waiting {
	return waiting{slots: map[slotID]string{}, sets: map[string]bool{}, chains: map[string]bool{}, stale: staleClients{}}
}

func (w *waiting) empty() bool {
	return len(w.slots)+len(w.sets)+len(w.chains)+len(w.stale) == 0
}

func (w *waiting) add(more waiting) {
	maps.Copy(w.slots, more.slots)
	maps.Copy(w.sets, more.sets)
	maps.Copy(w.chains, more.chains)
	w.stale.add(more.stale)
}

// removals are removed when a timer has rung twice: what is young when it does grows
// old, and what is old goes. So what comes all the time delays nothing.
type removals struct {
	young, old waiting
	timer      *time.Timer
	failures   int // in a row
}

func newRemovals() removals { return removals{young: newWaiting(), old: newWaiting()} }

func (r *removals) empty() bool { return r.young.empty() && r.old.empty() }

func (r *removals) both() [2]*waiting { return [...]*waiting{&r.young, &r.old} }

func (r *removals) slots(id slotID) (endpoints string, waits bool) {
	if endpoints, waits = r.young.slots[id]; !waits {
		endpoints, waits = r.old.slots[id]
	}
	return endpoints, waits
}

func (r *removals) set(name string) bool   { return r.young.sets[name] || r.old.sets[name] }
func (r *removals) chain(name string) bool { return r.young.chains[name] || r.old.chains[name] }

// keepSlots, keepSet and keepChain have what is wanted again, or gone, wait no more.
func (r *removals) keepSlots(id slotID) {
	for _, w := range r.both() {
		delete(w.slots, id)
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

// only leaves what was seen in the kernel.
func (r *removals) only(seen waiting) {
	for _, w := range r.both() {
		maps.DeleteFunc(w.slots, func(id slotID, _ string) bool { _, is := seen.slots[id]; return !is })
		maps.DeleteFunc(w.sets, func(name string, _ bool) bool { return !seen.sets[name] })
		maps.DeleteFunc(w.chains, func(name string, _ bool) bool { return !seen.chains[name] })
		for id, endpoints := range seen.slots {
			if _, is := w.slots[id]; is {
				w.slots[id] = endpoints
			}
		}
	}
}

// schedule has the timer run while something waits.
func (b *Backend) schedule() {
	if b.late.timer == nil && !b.late.empty() {
		b.late.timer = time.AfterFunc(removeAfter, b.ring)
	}
}

func (b *Backend) unschedule() {
	if b.late.timer != nil {
		b.late.timer.Stop()
		b.late.timer = nil
	}
}

// ring is what the timer does.
func (b *Backend) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	due := b.late.old
	b.late.old, b.late.young = b.late.young, newWaiting()
	if err := b.remove(context.Background(), due); err != nil && b.options.Trouble != nil {
		b.options.Trouble(err)
	}
	b.schedule()
}

// Settle removes at once what waits for it.
func (b *Backend) Settle(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	due := b.late.old
	due.add(b.late.young)
	b.late.young, b.late.old = newWaiting(), newWaiting()
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
		return nil
	}
	b.late.failures++
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

// removeObjects deletes endpoints, then chains, then the maps that they looked into.
func (b *Backend) removeObjects(ctx context.Context, due waiting) error {
	batch := nft.NewBatch(b.table)
	for id, data := range due.slots {
		if due.sets[id.set] {
			continue // goes with the map
		}
		if batch.Len() >= batchLimit {
			if err := errors.Join(ctx.Err(), b.options.Conn.Commit(batch)); err != nil {
				return err
			}
			batch.Reset()
		}
		s, _ := shapeOf(id.set)
		b.reader.reset()
		list, err := b.reader.elementsOf(id.set, s, id.frontend, data)
		if err != nil {
			return err
		}
		for _, e := range list {
			batch.DeleteElement(id.set, e, 0)
		}
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
