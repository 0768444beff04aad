package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan/bench/figures"
	"portolan/e2e/controlplane"
	"portolan/lab"
)

// A runPlan says what is measured in a run, and for how long.
type runPlan struct {
	changes  int           // of each sort
	pause    time.Duration // between spaced ones, longer than any minSyncPeriod
	busy     time.Duration // changes beside others; 0 leaves these rows out, as below
	idle     time.Duration
	connects int // to each target
	emptied  bool
	storm    time.Duration
	deadline time.Duration // for every single wait

	stormRate int // changes a second
}

const (
	defaultMinSync = 0 // what the product does by itself
	fastMinSync    = 10 * time.Millisecond
	sampled        = 50 // ClusterIPs that must answer
)

// run measures one product on a fresh node of the world and adds what it finds. A
// figure that was not reached in time is left out, with an error that says so.
func (w *world) run(ctx context.Context, b binaries, p product, plan runPlan, got *figures.Run) error {
	node, err := w.nextNode(ctx)
	if err != nil {
		return err
	}
	m := measurement{world: w, binaries: b, product: p, runPlan: plan, node: node, got: got}
	if m.group, err = newMemoryGroup(w.used); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.cold, m.again, m.nothingLeft} {
		if err = part(ctx); err != nil {
			break
		}
	}
	if m.running != nil {
		if err != nil {
			err = fmt.Errorf("%w; the log of %v ends with\n%s", err, p, m.running.log.Tail(10))
		}
		err = errors.Join(err, m.running.stop())
	}
	if m.group != nil {
		err = errors.Join(err, m.group.close())
	}
	return err
}

// measurement is a run under way.
type measurement struct {
	*world
	binaries
	product
	runPlan
	node    *lab.Node
	group   *memoryGroup // of the product; nil where the kernel does not tell its memory
	running *proxy
	got     *figures.Run
}

// cold starts the product with an empty kernel and changes EndpointSlices, with
// the default settings.
func (m *measurement) cold(ctx context.Context) error {
	began := time.Now()
	if err := m.launch(ctx, m.server, defaultMinSync, ""); err != nil {
		return err
	}
	if m.group != nil {
		if err := m.group.add(m.running.pid()); err != nil {
			return err
		}
	}
	children := watchChildren(m.running.pid())
	err := m.loadAndChange(ctx, began)
	peak := children.end()
	if err != nil {
		return err
	}
	own := peakMemory(m.running.pid())
	m.got.Add(figures.PeakMemory, mebibytes(own+peak))
	m.got.Add(figures.OwnMemory, mebibytes(own))
	if m.storm > 0 {
		return m.weather(ctx)
	}
	return nil
}

func (m *measurement) loadAndChange(ctx context.Context, began time.Time) error {
	if err := m.awaitAll(ctx); err != nil {
		return err
	}
	m.got.Add(figures.LastVIP, time.Since(began).Seconds())
	took, err := m.awaitFirstSync(ctx)
	if err != nil {
		return err
	}
	m.got.Add(figures.FirstSync, took.Seconds())
	if err := m.forgetFlows(ctx); err != nil {
		return err
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	m.got.Add(figures.SettledMemory, mebibytes(residentMemory(m.running.pid())))
	if err := m.changeSpaced(ctx); err != nil {
		return err
	}
	if err := m.change(ctx, figures.BackToBack, m.changes, 0); err != nil {
		return err
	}
	if err := m.changeAmongOthers(ctx, figures.Busy); err != nil {
		return err
	}
	if err := m.calm(ctx); err != nil { // some changes may not be written yet
		return err
	}
	return m.connect(ctx)
}

// launch starts the product, which reads the objects from a control plane.
func (m *measurement) launch(ctx context.Context, from *controlplane.Server, minSync time.Duration, recorder string) (err error) {
	m.running, err = m.start(ctx, m.binaries, m.product, m.node, from, minSync, recorder)
	return err
}

// calm waits until the product has done what follows a first sync or many changes, the
// other family and collecting garbage among it, so that what comes is not charged for it.
func (m *measurement) calm(ctx context.Context) error {
	const look, busy = time.Second, 10 * time.Millisecond // of a look
	for range 15 {
		before, err := readCPU(m.running.pid())
		if err != nil {
			return err
		}
		if err := m.rest(ctx, look); err != nil {
			return err
		}
		after, err := readCPU(m.running.pid())
		if err != nil {
			return err
		}
		if after.since(before).total() < busy {
			return nil
		}
	}
	return nil // it never is; so be it
}

// again starts the product where nothing has changed, with the short
// minSyncPeriod, counts what it writes, leaves it alone, and changes
// EndpointSlices back to back.
func (m *measurement) again(ctx context.Context) error {
	if err := m.calm(ctx); err != nil { // it may have something left to clear away
		return err
	}
	if err := m.running.stop(); err != nil {
		return err
	}
	if m.group != nil {
		held, err := m.group.kernelMemory()
		if err != nil {
			return err
		}
		m.got.Add(figures.KernelMemory, mebibytes(held))
	}
	count, dir, err := m.counter()
	if err != nil {
		return err
	}
	writes, err := count()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := m.launch(ctx, m.server, fastMinSync, dir); err != nil {
		return err
	}
	if _, err := m.awaitFirstSync(ctx); err != nil {
		return err
	}
	m.got.Add(figures.Restart, time.Since(began).Seconds())
	if err := m.rest(ctx, 3*time.Second); err != nil {
		return err
	}
	up, err := count()
	if err != nil {
		return err
	}
	m.got.Add(figures.RestartWrites, float64(up-writes))
	if err := m.quiet(ctx, count); err != nil {
		return err
	}
	if err := m.change(ctx, figures.BackToBack10, m.changes, 0); err != nil {
		return err
	}
	return m.changeAmongOthers(ctx, figures.Busy10)
}

// quiet leaves the product alone.
func (m *measurement) quiet(ctx context.Context, count func() (int, error)) error {
	if m.idle == 0 {
		return nil
	}
	start, err := count()
	if err != nil {
		return err
	}
	before, err := readCPU(m.running.pid())
	if err != nil {
		return err
	}
	if err := m.rest(ctx, m.idle); err != nil {
		return err
	}
	after, err := readCPU(m.running.pid())
	if err != nil {
		return err
	}
	end, err := count()
	if err != nil {
		return err
	}
	m.got.Add(figures.IdleCPU, milliseconds(after.since(before).total())/m.idle.Seconds())
	m.got.Add(figures.IdleWrites, float64(end-start))
	return nil
}

// nothingLeft starts the product, all of whose rules are still there, where every
// Service was deleted meanwhile.
func (m *measurement) nothingLeft(ctx context.Context) error {
	if !m.emptied {
		return nil
	}
	empty, err := m.emptyServer(ctx, m.node)
	if err != nil {
		return err
	}
	if err := m.running.stop(); err != nil {
		return err
	}
	began := time.Now()
	if err := m.launch(ctx, empty, fastMinSync, ""); err != nil {
		return err
	}
	silent, err := m.awaitSilence(ctx)
	if err != nil {
		return err
	}
	m.got.Add(figures.Emptied, silent.Sub(began).Seconds())
	if err := m.calm(ctx); err != nil {
		return err
	}
	used, err := readCPU(m.running.pid())
	m.got.Add(figures.EmptiedCPU, used.total().Seconds())
	return err
}

// awaitAll waits until every sampled ClusterIP answers.
func (m *measurement) awaitAll(ctx context.Context) error {
	left := sample(m.items, sampled)
	err := m.until(ctx, 5*time.Millisecond, func() bool {
		for len(left) > 0 && m.answered(left[0]) {
			left = left[1:]
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("bench: %v: %d of %d ClusterIPs do not answer: %w", m.product, len(left), sampled, err)
	}
	return nil
}

// awaitSilence waits until some ClusterIPs do not answer any more, and returns when
// that began. They are watched side by side: what does not answer takes its time.
func (m *measurement) awaitSilence(ctx context.Context) (time.Time, error) {
	const watched = 5
	var silent [watched]time.Time
	var errs [watched]error
	var wg sync.WaitGroup
	for i, to := range sample(m.items, watched) {
		wg.Go(func() {
			errs[i] = m.until(ctx, 5*time.Millisecond, func() bool {
				silent[i] = time.Now()
				return !m.answered(to)
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return time.Time{}, fmt.Errorf("bench: %v: ClusterIPs without a Service answer: %w", m.product, err)
	}
	return slices.MaxFunc(silent[:], time.Time.Compare), nil
}

func (m *measurement) answered(to netip.AddrPort) bool {
	return m.lab.Client.Dial("tcp", to, 300*time.Millisecond).Verdict == lab.Answered
}

func (m *measurement) awaitFirstSync(ctx context.Context) (took time.Duration, err error) {
	pause := 5 * time.Millisecond
	if m.name == figures.KubeProxy {
		pause = 50 * time.Millisecond // telling its metrics is work for it
	}
	err = m.until(ctx, pause, func() (done bool) {
		s, err := m.running.syncs(ctx) // it may not answer yet
		if err != nil || s.full == 0 {
			return false
		}
		took = s.fullTime / time.Duration(s.full)
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("bench: %v: the first sync is not over: %w", m.product, err)
	}
	return took, nil
}

// forgetFlows removes connections from before the rules were there: they would
// spoil later ones from the same port.
func (m *measurement) forgetFlows(ctx context.Context) error {
	if out, err := m.node.Command(ctx, lab.HostVariant, "conntrack", "-F").CombinedOutput(); err != nil {
		return fmt.Errorf("bench: conntrack -F: %w: %s", err, out)
	}
	return nil
}

// until asks again and again, with a pause between, until the answer is yes, the
// deadline has passed or the product has ended.
func (m *measurement) until(ctx context.Context, pause time.Duration, done func() bool) error {
	deadline := time.After(m.deadline)
	again := time.NewTicker(pause)
	defer again.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("not within %v", m.deadline)
		case <-m.running.cmd.Done():
			return errors.New("it ended")
		case <-again.C:
		}
	}
	return nil
}

func (m *measurement) rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.running.cmd.Done():
		return errors.New("bench: it ended")
	case <-time.After(d):
		return nil
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }
