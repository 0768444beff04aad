package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"portolan/lab"
)

// A sampleSet is what one run measured: values in the unit of the row, several where
// a run has several.
type sampleSet map[row][]float64

func (s sampleSet) add(r row, v float64) { s[r] = append(s[r], v) }

// A runPlan says how long a run is.
type runPlan struct {
	changes  int           // of each sort
	pause    time.Duration // between spaced ones, longer than any minSyncPeriod
	idle     time.Duration // 0 leaves the idle rows out
	deadline time.Duration // for every single wait
	connects int           // to each target; 0 leaves these rows out
	storm    time.Duration // 0 leaves the storm out
}

const (
	defaultMinSync = 0 // what the product does by itself
	fastMinSync    = 10 * time.Millisecond
	sampled        = 50 // ClusterIPs that must answer
)

// run measures one product on a fresh node of the world. A figure that was not
// reached in time is left out, with an error that says so.
func (w *world) run(ctx context.Context, b binaries, p product, plan runPlan) (sampleSet, error) {
	node, err := w.nextNode(ctx)
	if err != nil {
		return nil, err
	}
	m := measurement{world: w, binaries: b, product: p, runPlan: plan, node: node, got: sampleSet{}}
	err = m.cold(ctx)
	if err == nil {
		err = m.again(ctx)
	}
	if err == nil && plan.idle > 0 {
		err = m.quiet(ctx)
	}
	if m.running != nil {
		if err != nil {
			err = fmt.Errorf("%w; the log of %v ends with\n%s", err, p, m.running.log.tail())
		}
		err = errors.Join(err, m.running.stop())
	}
	return m.got, err
}

// measurement is a run under way.
type measurement struct {
	*world
	binaries
	product
	runPlan
	node    *lab.Node
	running *proxy
	got     sampleSet
}

// cold starts the product with an empty kernel and changes one EndpointSlice, with
// the default settings.
func (m *measurement) cold(ctx context.Context) error {
	began := time.Now()
	if err := m.launch(ctx, defaultMinSync, ""); err != nil {
		return err
	}
	children := watchChildren(m.running.pid())
	err := m.loadAndChange(ctx, began)
	peak := children.end()
	if err != nil {
		return err
	}
	own := peakMemory(m.running.pid())
	m.got.add(memory, float64(own+peak)/(1<<20))
	m.got.add(ownMemory, float64(own)/(1<<20))
	return nil
}

func (m *measurement) loadAndChange(ctx context.Context, began time.Time) error {
	if err := m.awaitAll(ctx); err != nil {
		return err
	}
	m.got.add(lastVIP, time.Since(began).Seconds())
	took, err := m.awaitFirstSync(ctx)
	if err != nil {
		return err
	}
	m.got.add(firstSync, took.Seconds())
	if err := m.forgetFlows(ctx); err != nil {
		return err
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	if err := m.changeSpaced(ctx); err != nil {
		return err
	}
	if err := m.change(ctx, backToBack, 0); err != nil {
		return err
	}
	if m.connects > 0 {
		if err := m.connect(ctx); err != nil {
			return err
		}
	}
	if m.storm > 0 {
		return m.weather(ctx)
	}
	return nil
}

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
	if err := m.change(ctx, spaced, m.pause); err != nil {
		return err
	}
	after, err := readCPU(m.running.pid())
	if err != nil {
		return err
	}
	m.got.add(changeCPU, milliseconds(after.since(before).total())/float64(len(m.got[spaced])))
	now, err := m.running.syncs(ctx)
	if n := now.partial - synced.partial; n > 0 {
		m.got.add(changeSync, milliseconds(now.partialTime-synced.partialTime)/float64(n))
	}
	return err
}

// calm waits until the product has done what follows a first sync, the other
// family and collecting garbage among it, so that changes are not charged for it.
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

// again stops the product, starts it with the short minSyncPeriod where nothing
// has changed, and changes the EndpointSlice back to back.
func (m *measurement) again(ctx context.Context) error {
	if err := m.relaunch(ctx, fastMinSync, "", restart); err != nil {
		return err
	}
	if err := m.rest(ctx, 2*time.Second); err != nil {
		return err
	}
	return m.change(ctx, backToBack10, 0)
}

// quiet starts the product once more, counts what it writes, and leaves it alone.
func (m *measurement) quiet(ctx context.Context) error {
	count, dir, err := m.counter()
	if err != nil {
		return err
	}
	start, err := count()
	if err != nil {
		return err
	}
	if err := m.relaunch(ctx, defaultMinSync, dir, rows); err != nil {
		return err
	}
	if err := m.rest(ctx, 3*time.Second); err != nil {
		return err
	}
	up, err := count()
	if err != nil {
		return err
	}
	m.got.add(restartWrites, float64(up-start))
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
	m.got.add(idleCPU, milliseconds(after.since(before).total())/m.idle.Seconds())
	end, err := count()
	m.got.add(idleWrites, float64(end-up))
	return err
}

// counter returns what counts writes to the kernel, and the folder of the programs
// to run for it.
func (m *measurement) counter() (count func() (int, error), dir string, err error) {
	if m.mode == legacy {
		r, err := newRecorder(m.dir)
		return func() (int, error) { return r.writes(), nil }, r.dir, err
	}
	return func() (int, error) {
		n, err := nftCommits(&m.node.Host)
		return int(n), err
	}, "", nil
}

func (m *measurement) launch(ctx context.Context, minSync time.Duration, recorder string) (err error) {
	m.running, err = m.start(ctx, m.binaries, m.product, m.node, minSync, recorder)
	return err
}

// relaunch ends the product and starts it again; as, unless it is rows, is what
// the time until its first sync is over counts as.
func (m *measurement) relaunch(ctx context.Context, minSync time.Duration, recorder string, as row) error {
	if err := m.running.stop(); err != nil {
		return err
	}
	began := time.Now()
	if err := m.launch(ctx, minSync, recorder); err != nil {
		return err
	}
	if _, err := m.awaitFirstSync(ctx); err != nil {
		return err
	}
	if as != rows {
		m.got.add(as, time.Since(began).Seconds())
	}
	return nil
}

// change switches the ports of all endpoints of one EndpointSlice to where nobody
// listens and back, and waits each time until a connection shows it.
func (m *measurement) change(ctx context.Context, as row, pause time.Duration) error {
	to := frontend(m.items[m.target])
	for i := range 2 * ((m.changes + 1) / 2) { // an even number, so that it ends as it began
		port, want := int32(shutPort), lab.Refused
		if i%2 == 1 {
			port, want = openPort, lab.Answered
		}
		began := time.Now()
		if err := m.set(ctx, port); err != nil {
			return err
		}
		err := m.until(ctx, 500*time.Microsecond, func() bool {
			return m.lab.Client.Dial("tcp", to, 100*time.Millisecond).Verdict == want
		})
		if err != nil {
			return fmt.Errorf("bench: %v: a change is not seen: %w", m.product, err)
		}
		m.got.add(as, milliseconds(time.Since(began)))
		if err := m.rest(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// set changes the EndpointSlice where the product gets it from.
func (m *measurement) set(ctx context.Context, port int32) error {
	if m.peer || m.input == apiServer {
		return m.putMoving(ctx, port)
	}
	return m.writeMoving(port)
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

func (m *measurement) answered(to netip.AddrPort) bool {
	return m.lab.Client.Dial("tcp", to, 300*time.Millisecond).Verdict == lab.Answered
}

func (m *measurement) awaitFirstSync(ctx context.Context) (took time.Duration, err error) {
	pause := 5 * time.Millisecond
	if m.peer {
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
