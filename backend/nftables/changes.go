package nftables

import (
	"context"
	"time"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// blindSignal is how often Changes sends for no reason where it hears nothing.
const blindSignal = time.Minute

// Changes sends when somebody else changed our table, which the kernel tells at
// once. Where it does not, Options.Deaf hears of it, and Changes sends every minute.
func (b *Backend) Changes(ctx context.Context) <-chan dataplane.Notice {
	notices := make(chan dataplane.Notice, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notices = notices
	listener, err := b.options.Conn.Listen()
	go func() {
		if err == nil {
			err = b.hear(ctx, listener, notices)
		}
		if ctx.Err() != nil {
			return
		}
		if b.options.Deaf != nil {
			b.options.Deaf(err)
		}
		ticker := time.NewTicker(blindSignal)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				dataplane.Tell(notices, dataplane.Notice{})
			}
		}
	}()
	return notices
}

// hear tells what it hears until that ends.
func (b *Backend) hear(ctx context.Context, l *nft.Listener, notices chan dataplane.Notice) error {
	defer l.Close()
	for {
		heard, err := l.Wait(ctx, b.table)
		if err != nil {
			return err
		}
		dataplane.Tell(notices, dataplane.Notice{By: heard.Program, Urgent: heard.Removed})
	}
}
