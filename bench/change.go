package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/bench/figures"
	"portolan/lab"
)

// changeSpaced makes changes with pauses and measures what each costs.
func (m *measurement) changeSpaced(ctx context.Context) error {
	synced, err := m.running.syncs(ctx)
	if err != nil {
		return err
	}
	before, err := readCPU(m.running.pid())
	if err != nil {
		return err
	}
	if err := m.change(ctx, figures.Spaced, m.changes, m.pause); err != nil {
		return err
	}
	after, err := readCPU(m.running.pid())
	if err != nil {
		return err
	}
	m.got.Add(figures.ChangeCPU, milliseconds(after.since(before).total())/float64(len(m.got.Values[figures.Spaced])))
	now, err := m.running.syncs(ctx)
	if n := now.partial - synced.partial; n > 0 {
		m.got.Add(figures.ChangeSync, milliseconds(now.partialTime-synced.partialTime)/float64(n))
	}
	return err
}

// change switches the ports of all endpoints of one EndpointSlice to where nobody
// listens and back, so many times and once more for an odd number, and waits each
// time until a connection shows it.
func (m *measurement) change(ctx context.Context, as figures.Row, times int, pause time.Duration) error {
	for i := 0; i < times || i%2 == 1; i++ {
		port, want := int32(shutPort), lab.Refused
		if i%2 == 1 {
			port, want = openPort, lab.Answered
		}
		answered, seen, err := m.changeOnce(ctx, port, want)
		if err != nil {
			return err
		}
		m.got.Add(as, milliseconds(seen))
		if as == figures.Spaced {
			m.got.Add(figures.SpacedAnswer, milliseconds(answered))
		}
		if err := m.rest(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// changeOnce tells how long it took until the API server answered, and until a connection
// showed the change.
func (m *measurement) changeOnce(ctx context.Context, port int32, want lab.Verdict) (answered, seen time.Duration, err error) {
	to := frontend(m.items[m.target])
	began := time.Now()
	if err := m.putMoving(ctx, port); err != nil {
		return 0, 0, err
	}
	answered = time.Since(began)
	err = m.until(ctx, 500*time.Microsecond, func() bool {
		return m.lab.Client.Dial("tcp", to, 100*time.Millisecond).Verdict == want
	})
	if err != nil {
		return 0, 0, fmt.Errorf("bench: %v: a change is not seen: %w", m.product, err)
	}
	return answered, time.Since(began), nil
}

// changeAmongOthers makes changes one after the other while EndpointSlices of other
// Services change 20 times a second: what a rollout elsewhere does to this one.
func (m *measurement) changeAmongOthers(ctx context.Context, as figures.Row) error {
	if m.busy == 0 {
		return nil
	}
	const others, pause, most = 20, 15 * time.Millisecond, 200
	blowing, calm := context.WithCancel(ctx)
	defer calm()
	var sent int
	var blown error
	var wg sync.WaitGroup
	wg.Go(func() { sent, blown = m.blow(blowing, others) })
	end := time.Now().Add(m.busy)
	var err error
	for n := 0; err == nil && n < most && time.Now().Before(end); n += 2 {
		err = m.change(ctx, as, 2, pause)
	}
	calm()
	wg.Wait()
	return errors.Join(err, blown, m.putBack(ctx, sent))
}

// putMoving changes the ports of the EndpointSlice of the Service that is called.
func (w *world) putMoving(ctx context.Context, port int32) error {
	s := w.items[w.target].slices[0].DeepCopy()
	s.Ports[0].Port = &port
	return w.put(ctx, s)
}

// put replaces an EndpointSlice, whatever the API server has there.
func (w *world) put(ctx context.Context, s *discovery.EndpointSlice) error {
	s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	return w.api.Call(ctx, http.MethodPut, slicesPath+"/"+s.Name, s, nil)
}

// blow changes EndpointSlices of other Services, so many a second, until ctx ends,
// and tells how many it changed.
func (w *world) blow(ctx context.Context, rate int) (sent int, err error) {
	next := time.NewTicker(time.Second / time.Duration(rate))
	defer next.Stop()
	err = abreast(context.WithoutCancel(ctx), func(yield func(task) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			n := sent
			if sent++; !yield(func(ctx context.Context) error { return w.flip(ctx, n) }) {
				return
			}
		}
	})
	if err != nil {
		return sent, fmt.Errorf("bench: changes of other EndpointSlices: %w", err)
	}
	return sent, nil
}

// flip makes change number n: each Service in turn, the first endpoint of which is
// not ready, and is again in the next round.
func (w *world) flip(ctx context.Context, n int) error {
	i, round := n%len(w.items), n/len(w.items)
	if i == w.target || len(w.items[i].slices) == 0 {
		return nil
	}
	s := w.items[i].slices[0].DeepCopy()
	ready := round%2 == 1
	s.Endpoints[0].Conditions.Ready = &ready
	return w.put(ctx, s)
}

// putBack makes ready again what the first so many changes left unready, so that
// the next run meets the same objects.
func (w *world) putBack(ctx context.Context, sent int) error {
	first, end := takenAway(sent, len(w.items))
	return abreast(ctx, func(yield func(task) bool) {
		for i := first; i < end; i++ {
			if !yield(func(ctx context.Context) error { return w.flip(ctx, len(w.items)+i) }) {
				return
			}
		}
	})
}

// takenAway are the Services whose endpoint is unready after so many changes.
func takenAway(sent, services int) (first, end int) {
	inRound, round := sent%services, sent/services
	if round%2 == 1 { // under way is a round of giving back
		return inRound, services
	}
	return 0, inRound
}

// A task is something to ask the API server for.
type task func(context.Context) error

// abreast does tasks, several at a time, since the API server takes longer for one
// than it takes from one to the next, until one fails or all are done.
func abreast(ctx context.Context, tasks iter.Seq[task]) error {
	const workers = 16
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan task)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for do := range work {
				if err := do(ctx); err != nil {
					stop(err)
				}
			}
		})
	}
	for do := range tasks {
		if ctx.Err() != nil {
			break
		}
		work <- do
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}
