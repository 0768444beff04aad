package iptables

import (
	"context"
	"time"
)

// How often the kernel is looked at for changes by others, and how much longer
// than an observation took the next signal waits, so that a host where others
// write all the time is not observed all the time.
const (
	lookEvery    = 300 * time.Millisecond
	observeShare = 20
)

// Changes sends when a table changed that we did not write. A look is a system
// call or two and does not list anything. It cannot see a legacy rule that was
// exchanged for another of the same size, and with nft it also sees writes to
// other tables; only an observation can tell. The channel never sends when the
// kernel cannot be looked at.
func (b *Backend) Changes(ctx context.Context) <-chan struct{} {
	signal := make(chan struct{}, 1)
	watch, err := b.options.Tool.Watch()
	if err != nil {
		return signal
	}
	b.mu.Lock()
	b.watch = watch
	b.seen, _ = watch.Look() // a failed look is the zero Generation, and changes later
	b.mu.Unlock()
	go func() {
		defer b.stopWatching()
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		var last time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				if b.changed(now.Sub(last)) {
					last = now
					select {
					case signal <- struct{}{}:
					default:
					}
				}
			}
		}
	}()
	return signal
}

// changed tells whether to signal, the last signal being that long ago.
func (b *Backend) changed(since time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look()
	if !b.foreign || since < b.pause {
		return false
	}
	b.foreign = false
	return true
}

// look notes what others did since the last look.
func (b *Backend) look() {
	if b.watch == nil {
		return
	}
	now, err := b.watch.Look()
	if err == nil && now != b.seen {
		b.seen, b.foreign = now, true
	}
}

// writing surrounds a write of our own: what others did before it counts, what
// it does itself does not. Holding the lock keeps the ticker from looking in
// between.
func (b *Backend) writing() (done func()) {
	b.mu.Lock()
	b.look()
	return func() {
		if b.watch != nil {
			if now, err := b.watch.Look(); err == nil {
				b.seen = now
			}
		}
		b.mu.Unlock()
	}
}

// observed sets the pace of signals by what an observation costs.
func (b *Backend) observed(took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pause = took * observeShare
}

func (b *Backend) stopWatching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watch.Close()
	b.watch = nil
}
