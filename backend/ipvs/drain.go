package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"portolan/kernel/ipvs"
)

// drainEvery is how often it is looked whether connections have ended.
const drainEvery = 5 * time.Second

// underWay is how long a real server of another protocol than TCP stays at weight 0,
// for the answers that are under way: with it the kernel forgets its connections, and
// translates nothing back any more.
const underWay = 100 * time.Millisecond

// realID is one real server of one virtual server.
type realID struct {
	server ipvs.ID
	addr   netip.AddrPort
}

// drains are what goes when its connections have ended.
type drains struct {
	draining map[realID]time.Time // real servers of weight 0, and since when
	retired  map[ipvs.ID]bool     // virtual servers that go with their last real server
	drainNow map[ipvs.ID]bool     // where something of this came since the last look
	timer    *time.Timer
	next     time.Time // when it rings
}

func newDrains() drains {
	return drains{draining: map[realID]time.Time{}, retired: map[ipvs.ID]bool{}, drainNow: map[ipvs.ID]bool{}}
}

// forgetServer drops what waits at a virtual server that goes.
func (d *drains) forgetServer(id ipvs.ID) {
	delete(d.retired, id)
	delete(d.drainNow, id)
	for real := range d.draining {
		if real.server == id {
			delete(d.draining, real)
		}
	}
}

// Drain removes real servers without connections, and those whose time is over.
func (b *Backend) Drain(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	for real := range b.draining {
		b.drainNow[real.server] = true
	}
	maps.Copy(b.drainNow, b.retired)
	return b.drain(ctx)
}

// drain looks at the virtual servers of drainNow, and has the rest looked at later.
func (b *Backend) drain(ctx context.Context) error {
	var errs []error
	for id := range b.drainNow {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if err := b.drainServer(id); err != nil {
			errs = append(errs, fmt.Errorf("ipvs: drain: %w", err))
			continue
		}
		delete(b.drainNow, id)
	}
	b.schedule()
	return errors.Join(errs...)
}

// drainServer removes the real servers of a virtual one whose time is over, and the
// virtual server itself when it is retired and the last of them is gone.
func (b *Backend) drainServer(id ipvs.ID) error {
	k := b.options.Kernel.Servers
	list, err := k.Reals(id)
	if err != nil {
		return err
	}
	left := len(list)
	for _, r := range list {
		real := realID{id, r.Addr}
		since, waits := b.draining[real]
		if !waits || r.Weight > 0 || !b.mayGo(id.Protocol, time.Since(since), r.Active+r.Inactive) {
			continue
		}
		if err := ignore(k.DeleteReal(id, r.Addr), unix.ENOENT); err != nil {
			return err
		}
		delete(b.draining, real)
		left--
	}
	if left == 0 && b.retired[id] {
		if err := ignore(k.DeleteServer(id), unix.ESRCH); err != nil {
			return err
		}
		b.forgetServer(id)
	}
	return nil
}

// mayGo tells whether a real server of weight 0 is to be removed. Only of TCP it is
// known when connections have ended.
func (b *Backend) mayGo(p ipvs.Protocol, waited time.Duration, connections uint32) bool {
	if p != ipvs.TCP {
		return waited >= underWay
	}
	return connections == 0 || b.options.DrainWithin > 0 && waited >= b.options.DrainWithin
}

// schedule has it looked again while something waits. What comes all the time, for other
// servers, delays nothing; what is there yet though its time was over is not looked for
// more often than the rest.
func (b *Backend) schedule() {
	if len(b.draining)+len(b.retired) == 0 {
		b.unschedule()
		return
	}
	pause, latest := drainEvery, time.Duration(0)
	for real, since := range b.draining {
		if real.server.Protocol != ipvs.TCP {
			latest = max(latest, underWay-time.Since(since)) // one look for all of one write
		}
	}
	if latest > 0 {
		pause = latest
	}
	next := time.Now().Add(pause)
	if b.timer != nil && !next.Before(b.next) {
		return
	}
	b.unschedule()
	b.next = next
	b.timer = time.AfterFunc(pause, func() {
		if err := b.Drain(context.Background()); err != nil && b.options.Trouble != nil {
			b.options.Trouble(err)
		}
	})
}

func (b *Backend) unschedule() {
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}
