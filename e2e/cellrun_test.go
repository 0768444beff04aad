package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan/lab"
)

// How many cells are tried beside each other: those that are to be answered need the
// machine, the others mostly wait for a clock.
const (
	answersAtOnce = 24
	waitsAtOnce   = 256
)

// cellRun says how thorough to be.
type cellRun struct {
	tries, most int           // answers, at least; more until each endpoint has answered
	patience    time.Duration // for an answer
}

var (
	thorough = cellRun{tries: 12, most: mostTries, patience: patience}
	// quick is for rules that are known to be wrong: much of what it asks is never
	// answered.
	quick = cellRun{tries: 6, most: 32, patience: silence}
)

// slowRefusal is longer than an IPv6 TCP connect in a lab takes to be refused. Inside
// one machine the ICMP error comes while the caller is still sending its SYN, when
// Linux (6.18) only notes it; the second SYN, after 1 s, is refused at once.
const slowRefusal = 1300 * time.Millisecond

// cellResult is what became of the cells.
type cellResult struct {
	expected, run int
	skipped       map[string]int // by reason
	failed        map[cell]error
	tries         int
}

// TestCells: every cell of the table, against every backend.
func TestCells(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		table, err := readCells(b.mode)
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, b, cellScenario())
		r := c.runCells(table, thorough)
		c.tries = r.tries
		for _, cell := range sortedCells(r.failed) {
			t.Errorf("%v: %s: %v", cell, table[cell].place, r.failed[cell])
		}
		c.count("cells", r.run)
		did.addCells(b.Name(), r)
	})
}

func sortedCells(failed map[cell]error) []cell {
	var list []cell
	for c := range failed {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b cell) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// runCells tries all cells that can exist.
func (c *cluster) runCells(table cellTable, run cellRun) cellResult {
	services := map[string]manifest{}
	for _, m := range cellServices() {
		services[m.name] = m
	}
	r := cellResult{skipped: map[string]int{}, failed: map[cell]error{}}
	var mu sync.Mutex
	var tries atomic.Int64
	var running sync.WaitGroup
	answering, waiting := make(chan struct{}, answersAtOnce), make(chan struct{}, waitsAtOnce)
	for _, cell := range allCells() {
		r.expected++
		e := table[cell]
		if e.impossible != "" {
			r.skipped[e.impossible]++
			continue
		}
		r.run++
		slots := answering
		if e.verdict != lab.Answered {
			slots = waiting
		}
		running.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			f := flow{line: cell.String(), from: clientOf(cell), proto: cell.proto, to: services[serviceOf(cell)].destination(cell),
				verdict: e.verdict, pods: e.pods, seen: e.source}
			made, err := c.checkCell(f, run)
			tries.Add(int64(made))
			if err != nil {
				mu.Lock()
				r.failed[cell] = err
				mu.Unlock()
			}
		})
	}
	running.Wait()
	r.tries = int(tries.Load())
	return r
}

// clientOf names the client as flows do.
func clientOf(c cell) string {
	switch c.client {
	case "pod":
		return "pod:visitor"
	case "endpoint":
		return "pod:a"
	case "node":
		return "node1"
	}
	return "client"
}

// checkCell tries a cell until it is sure; it also tells how many tries it made.
// Unlike check it may run beside others.
func (c *cluster) checkCell(f flow, run cellRun) (int, error) {
	from := c.host(f.from)
	call := lab.Call{Proto: f.proto, To: f.to, Timeout: run.patience}
	tries := run.tries
	slow := f.proto == "tcp" && f.to.Addr().Is6()
	switch f.verdict {
	case lab.TimedOut:
		call.Timeout, tries = silence, 2
		if slow {
			call.Timeout, tries = slowRefusal, 1
		}
	case lab.Refused, lab.Unreachable:
		call.Timeout, tries = patience, 2
		if slow {
			tries = 1
		}
	}
	answered := map[string]int{}
	made := 0
	for made < tries || len(answered) < len(f.pods) && made < run.most {
		o := from.Try(call)
		made++
		if o.Verdict != f.verdict {
			return made, fmt.Errorf("try %d: %v, want %v", made, o, f.verdict)
		}
		if o.Verdict != lab.Answered {
			continue
		}
		answered[o.Pod]++
		if !slices.Contains(f.pods, o.Pod) {
			return made, fmt.Errorf("try %d: %v, who is not among the endpoints %v", made, o, f.pods)
		}
		want, err := c.seen(f, o)
		if err != nil {
			return made, err
		}
		if o.Seen.Addr() != want {
			return made, fmt.Errorf("try %d: %v, want source %v", made, o, want)
		}
	}
	if len(answered) != len(f.pods) {
		return made, fmt.Errorf("answers of %v only, want %v", answered, f.pods)
	}
	return made, nil
}
