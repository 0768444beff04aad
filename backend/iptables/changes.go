package iptables

import (
	"context"
	"io"
	"time"

	"portolan/dataplane"
	"portolan/kernel/iptables"
)

// blindSignal is how often Changes sends for no reason where tables cannot be
// looked at.
const blindSignal = time.Minute

// Changes sends when a table changed that this process did not write, as far as
// iptables.Watch can tell, with what a Glance finds missing. The pace of what that
// leads to is up to who gets it. Where tables cannot be looked at, Options.Trouble
// hears of it, once, and Changes sends every minute until they can.
func (b *Backend) Changes(ctx context.Context) <-chan dataplane.Notice {
	notices := make(chan dataplane.Notice, 1)
	watch, end := b.startWatching(ctx)
	go func() {
		defer end()
		ticker := time.NewTicker(blindSignal)
		defer ticker.Stop()
		blind := false
		for {
			late := false
			select {
			case <-ctx.Done():
				return
			case <-watch.News(b.options.Tool.Family):
			case <-ticker.C:
				late = true
			}
			n, some, err := b.notice(watch)
			if err != nil {
				if !blind && b.options.Trouble != nil {
					b.options.Trouble(err)
				}
				n, some = dataplane.Notice{}, late
			}
			if blind = err != nil; some {
				dataplane.Tell(notices, n)
			}
		}
	}()
	return notices
}

// notice says what others did, if anything.
func (b *Backend) notice(watch *iptables.Watch) (n dataplane.Notice, some bool, err error) {
	change, err := watch.Changed(b.options.Tool.Family)
	if err != nil || !change.Some && !change.Doubt {
		return dataplane.Notice{}, false, err
	}
	n = dataplane.Notice{By: change.Program, Urgent: change.Lost}
	var early bool
	if n.Glance, early, err = b.glance(watch); early && !change.Some {
		watch.Doubt(b.options.Tool.Family)
	}
	return n, change.Some || n.Glance != nil || err != nil, err
}

// startWatching opens a Watch unless one is there, on the thread of the caller,
// which says in which network namespace.
func (b *Backend) startWatching(ctx context.Context) (watch *iptables.Watch, end func()) {
	if w := b.options.Watch; w != nil {
		return w, func() {}
	}
	w, err := iptables.NewWatch(b.options.Tool)
	if err != nil {
		w, _ = iptables.NewWatch() // of nothing: it says so whenever it is asked
		return w, func() {}
	}
	b.own.Store(w)
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.Run(ctx)
	}()
	return w, func() {
		b.own.Store(nil)
		<-over
		_ = w.Close() // nothing depends on it
	}
}

// restore writes input as a change of our own.
func (b *Backend) restore(ctx context.Context, input func(io.Writer) error, effect iptables.Effect) error {
	write := func() error { return b.options.Tool.RestoreFrom(ctx, input) }
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
func effectOf(p dataplane.Plan, written restoreText) iptables.Effect {
	e := iptables.Effect{Commits: written.sections, Doubtful: written.doubtful, Entries: map[string]int{}}
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
