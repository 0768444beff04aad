package nftables

import (
	"context"
	"sync"
	"time"

	"portolan/dataplane"
	"portolan/kernel/nft"
)

// blindSignal is how often Changes sends for no reason where it hears nothing.
const blindSignal = time.Minute

// Changes sends when somebody else changed our table, which the kernel tells at
// once. Where it does not, Options.Deaf hears of it, and Changes sends every minute.
// While our table is not there it does not listen; see FirstWrites.
func (b *Backend) Changes(ctx context.Context) <-chan dataplane.Notice {
	notices := make(chan dataplane.Notice, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.notices = notices
	if there, err := b.options.Conn.HasTable(b.table); there || err != nil {
		b.listen(ctx)
		return notices
	}
	b.deaf = &deafness{ctx: ctx}
	b.options.First.begin()
	return notices
}

// FirstWrites are those of Backends to kernels without their table, during which none of
// them listens. While anybody does, the kernel makes a message of 4 KiB for each
// element that comes, and keeps all until the transaction ends, even where the filter of the
// listener lets none through. With 10,000 Services of 10 endpoints, 140,000 elements, a
// first sync takes 0.46 to 0.59 s with it and 0.27 to 0.40 without. Whether others
// changed anything meanwhile the kernel tells afterwards. The zero value is ready to use.
type FirstWrites struct {
	mu    sync.Mutex
	left  int
	ended []func() // what is to be done once none is left
}

func (f *FirstWrites) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left++
}

// end notes the end of one, and does everything that waits for the last.
func (f *FirstWrites) end(then func()) {
	f.mu.Lock()
	f.ended = append(f.ended, then)
	var now []func()
	if f.left--; f.left == 0 {
		now, f.ended = f.ended, nil
	}
	f.mu.Unlock()
	for _, do := range now {
		do()
	}
}

// deafness is the time until Changes listens.
type deafness struct {
	ctx   context.Context // of Changes
	since nft.Moment      // before the last observation
	err   error           // why that is not known
}

// observes is called before an observation.
func (b *Backend) observes() {
	if b.deaf != nil {
		b.deaf.since, b.deaf.err = b.options.Conn.Moment()
	}
}

// hearAgain ends the deafness, if there is one: something was written, or cannot be.
// It is called without the lock, since it takes that of every Backend.
func (b *Backend) hearAgain() {
	b.mu.Lock()
	d := b.deaf
	b.deaf = nil
	b.mu.Unlock()
	if d == nil {
		return
	}
	b.options.First.end(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.listen(d.ctx)
		others, err := b.options.Conn.OthersSince(d.since)
		if others || err != nil || d.err != nil {
			dataplane.Tell(b.notices, dataplane.Notice{Urgent: true})
		}
	})
}

// listen has notices sent until ctx ends.
func (b *Backend) listen(ctx context.Context) {
	notices := b.notices
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
