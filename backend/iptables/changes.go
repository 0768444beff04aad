package iptables

import (
	"context"
	"time"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// How often the tables are looked at for changes by others, and how often Changes
// sends for no reason where they cannot be looked at.
const (
	lookEvery   = 250 * time.Millisecond
	blindSignal = time.Minute
)

// Changes sends when a table changed that this process did not write, as far as
// iptables.Watch can tell. A look is a system call or two and lists nothing; the
// pace of what the signal leads to is up to who gets it. Where tables cannot be
// looked at, Options.Trouble hears of it, once, and Changes sends every minute
// until they can.
func (b *Backend) Changes(ctx context.Context) <-chan struct{} {
	signal := make(chan struct{}, 1)
	look, end := b.startLooking()
	go func() {
		defer end()
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		blind, last := false, time.Now()
		for {
			var now time.Time
			select {
			case <-ctx.Done():
				return
			case now = <-ticker.C:
			}
			changed, err := look()
			if err != nil {
				if !blind && b.options.Trouble != nil {
					b.options.Trouble(err)
				}
				changed = now.Sub(last) >= blindSignal
			}
			if blind = err != nil; !changed {
				continue
			}
			last = now
			select {
			case signal <- struct{}{}:
			default: // one waits already
			}
		}
	}()
	return signal
}

// startLooking opens a Watch unless one is there, on the thread of the caller,
// which says in which network namespace.
func (b *Backend) startLooking() (look func() (bool, error), end func()) {
	family := b.options.Tool.Family
	if w := b.options.Watch; w != nil {
		return func() (bool, error) { return w.Changed(family) }, func() {}
	}
	w, err := iptables.NewWatch(b.options.Tool)
	if err != nil {
		return func() (bool, error) { return false, err }, func() {}
	}
	b.own.Store(w)
	return func() (bool, error) { return w.Changed(family) }, func() {
		b.own.Store(nil)
		_ = w.Close() // nothing depends on it
	}
}

// restore writes input as a change of our own.
func (b *Backend) restore(ctx context.Context, text []byte, effect iptables.Effect) error {
	write := func() error { return b.options.Tool.Restore(ctx, text) }
	watch := b.options.Watch
	if watch == nil {
		watch = b.own.Load()
	}
	if watch == nil {
		return write()
	}
	return watch.Write(b.options.Tool.Family, effect, write)
}

// effectOf is what a plan does to the tables, written in that many sections.
func effectOf(p dataplane.Plan, sections int) iptables.Effect {
	e := iptables.Effect{Commits: sections, Entries: map[string]int{}}
	for _, c := range p.Changes {
		n := len(c.Created) - len(c.Deleted)
		switch {
		case c.Remove:
			n -= 2
		case !c.Exists && (!c.Keyed || c.Container == filterFirewall): // other keyed chains are built in
			n += 2
		}
		e.Entries[tableOf(c.Container)] += n
	}
	return e
}
