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

// removeAfter is how long what nothing leads to any more stays. A packet that is
// on its way through a chain while it is switched would lose its SYN without it.
const removeAfter = 150 * time.Millisecond

// removals are what waits to be removed.
type removals struct {
	slots  map[slotID]string // with the endpoints that the kernel has
	sets   map[string]bool
	chains map[string]bool
	stale  staleClients

	timer    *time.Timer
	failures int // in a row
}

// slotID is the endpoints of one frontend in one map.
type slotID struct{ set, frontend string }

func newRemovals() removals {
	return removals{slots: map[slotID]string{}, sets: map[string]bool{}, chains: map[string]bool{}, stale: staleClients{}}
}

func (r *removals) empty() bool {
	return len(r.slots)+len(r.sets)+len(r.chains)+len(r.stale) == 0
}

func (r *removals) add(more removals, stale staleClients) {
	maps.Copy(r.slots, more.slots)
	maps.Copy(r.sets, more.sets)
	maps.Copy(r.chains, more.chains)
	r.stale.add(stale)
}

// keep leaves only what was seen in the kernel.
func (r *removals) keep(seen removals) {
	r.slots, r.sets, r.chains = seen.slots, seen.sets, seen.chains
}

// schedule has what waits removed after a while. What came last waits longest,
// and what is waiting already a little longer.
func (b *Backend) schedule(after time.Duration) {
	if b.late.timer != nil {
		b.late.timer.Stop()
		b.late.timer = nil
	}
	if b.late.empty() {
		return
	}
	b.late.timer = time.AfterFunc(after, func() {
		if err := b.Settle(context.Background()); err != nil && b.options.Trouble != nil {
			b.options.Trouble(err)
		}
	})
}

// Settle removes what waits for it. After an error the table is to be looked at:
// Changes says so, later each time.
func (b *Backend) Settle(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.late.timer != nil {
		b.late.timer.Stop()
		b.late.timer = nil
	}
	if b.late.empty() {
		return nil
	}
	err := errors.Join(b.remove(ctx), b.forget(b.late.stale))
	failures := b.late.failures + 1
	b.late = newRemovals()
	if err == nil {
		return nil
	}
	b.late.failures = failures
	time.AfterFunc(min(time.Second<<min(failures, 6), time.Minute), b.lookAgain)
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

// remove deletes endpoints, then chains, then the maps that they looked into.
func (b *Backend) remove(ctx context.Context) error {
	batch := nft.NewBatch(b.table)
	for id, data := range b.late.slots {
		if b.late.sets[id.set] {
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
	names := slices.SortedFunc(maps.Keys(b.late.chains), strings.Compare)
	for _, name := range names {
		batch.FlushChain(name, 0)
	}
	for _, name := range names {
		batch.DeleteChain(name, 0)
	}
	for _, name := range slices.Sorted(maps.Keys(b.late.sets)) {
		batch.DeleteSet(name, 0)
	}
	return b.options.Conn.Commit(batch)
}
