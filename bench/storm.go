package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"portolan/lab"
)

// stormRate is how many EndpointSlices change in a second of a storm.
const stormRate = 100

// weather changes EndpointSlices of other Services at a steady rate while a client
// calls the one that stays, then measures how soon one more change is seen.
func (m *measurement) weather(ctx context.Context) error {
	before, err := m.look()
	if err != nil {
		return err
	}
	blowing, calm := context.WithTimeout(ctx, m.storm)
	defer calm()
	var wg sync.WaitGroup
	var sent int
	var failed, calls int
	wg.Go(func() { calls, failed = m.callOn(blowing) })
	began := time.Now()
	sent, err = m.blow(blowing)
	wg.Wait()
	if err != nil {
		return err
	}
	after, err := m.look()
	if err != nil {
		return err
	}
	took := time.Since(began)
	progress("%v: %d changes and %d calls in %.0f s", m.product, sent, calls, took.Seconds())
	m.got.add(stormCPU, 100*after.used.since(before.used).total().Seconds()/took.Seconds())
	m.got.add(stormMemory, float64(after.resident-before.resident)/(1<<20))
	m.got.add(stormFailed, float64(failed))
	return m.change(ctx, stormLast, 0)
}

// blow sends the changes: one endpoint of a Service is ready, or is not. Writers are
// several, since the API server takes longer for one than is between two.
func (m *measurement) blow(ctx context.Context) (sent int, err error) {
	work := make(chan int)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range work {
				if err := m.flip(context.WithoutCancel(ctx), n); err != nil {
					stop(err)
				}
			}
		})
	}
	tick := time.NewTicker(time.Second / stormRate)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			work <- sent
			sent++
		}
	}
	close(work)
	wg.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled) {
		return sent, fmt.Errorf("bench: storm: %w", cause)
	}
	return sent, nil
}

// flip makes change number n: each Service in turn, and its first endpoint back in
// the next round.
func (m *measurement) flip(ctx context.Context, n int) error {
	i, round := n%len(m.items), n/len(m.items)
	if i == m.target || len(m.items[i].slices) == 0 {
		return nil
	}
	s := m.items[i].slices[0].DeepCopy()
	ready := round%2 == 1
	s.Endpoints[0].Conditions.Ready = &ready
	s.ResourceVersion = "" // whatever is there
	s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: time.Now().Format(time.RFC3339Nano)}
	return m.api.Call(ctx, http.MethodPut, slicesPath+"/"+s.Name, s, nil)
}

// callOn calls the Service that stays, again and again.
func (m *measurement) callOn(ctx context.Context) (calls, failed int) {
	to := frontend(m.items[m.target])
	for ctx.Err() == nil {
		calls++
		if m.lab.Client.Dial("tcp", to, 5*time.Second).Verdict != lab.Answered {
			failed++
		}
	}
	return calls, failed
}

// usage is what a process has used and holds.
type usage struct {
	used     cpu
	resident int64 // bytes
}

func (m *measurement) look() (usage, error) {
	pid := m.running.pid()
	used, err := readCPU(pid)
	if err != nil {
		return usage{}, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return usage{}, fmt.Errorf("bench: memory of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return usage{}, fmt.Errorf("bench: memory of process %d: %q", pid, text)
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return usage{}, fmt.Errorf("bench: memory of process %d: %w", pid, err)
	}
	return usage{used, pages * int64(os.Getpagesize())}, nil
}
