package main

import (
	"context"
	"sync"
	"time"

	"portolan/bench/figures"
	"portolan/lab"
)

// weather changes EndpointSlices of other Services at a steady rate while a client
// calls the one that stays, then measures how soon one more change is seen.
func (m *measurement) weather(ctx context.Context) error {
	pid := m.running.pid()
	before, err := readCPU(pid)
	if err != nil {
		return err
	}
	resident := residentMemory(pid)
	blowing, calm := context.WithTimeout(ctx, m.storm)
	defer calm()
	var calls, failed int
	var wg sync.WaitGroup
	wg.Go(func() { calls, failed = m.callOn(blowing) })
	began := time.Now()
	sent, err := m.blow(blowing, m.stormRate)
	wg.Wait()
	if err != nil {
		return err
	}
	took := time.Since(began)
	after, err := readCPU(pid)
	if err != nil {
		return err
	}
	cpu, growth := 100*after.since(before).total().Seconds()/took.Seconds(), mebibytes(residentMemory(pid)-resident)
	progress("%v: %d changes and %d calls in %.0f s, %.1f %% of a core", m.product, sent, calls, took.Seconds(), cpu)
	if m.stormRate != stormRate {
		return m.putBack(ctx, sent)
	}
	m.got.Add(figures.StormCPU, cpu)
	m.got.Add(figures.StormMemory, growth)
	m.got.Add(figures.StormFailed, float64(failed))
	if err := m.change(ctx, figures.StormLast, m.changes, 0); err != nil {
		return err
	}
	return m.putBack(ctx, sent)
}

// callOn calls the Service that stays, 200 times a second: the more ports wait for
// the end of old connections, the longer the client looks for one.
func (m *measurement) callOn(ctx context.Context) (calls, failed int) {
	to := frontend(m.items[m.target])
	next := time.NewTicker(5 * time.Millisecond)
	defer next.Stop()
	for ctx.Err() == nil {
		<-next.C
		calls++
		if m.lab.Client.Dial("tcp", to, 5*time.Second).Verdict != lab.Answered {
			failed++
		}
	}
	return calls, failed
}
