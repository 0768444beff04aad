package main

import (
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// docs/scale.md has the tables that the program prints; go run ./bench/scale prints
// them anew.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	if err := tables(&want, large); err != nil {
		t.Fatal(err)
	}
	for _, table := range strings.Split(want.String(), "\n\n") {
		if !strings.Contains(string(text), strings.TrimSpace(table)) {
			t.Errorf("docs/scale.md has no\n%s", table)
		}
	}
}

// Where the answer is known without a simulation, it gives that answer.
func TestSimulate(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 0.05*want {
			t.Errorf("%s is %v, want about %v", what, got, want)
		}
	}
	idle := simulate(proxy{fixed: 5 * time.Millisecond}, 0.1, 1)
	near("delay of changes that meet nobody", idle.delay.Median(), 0.005)

	// One period after the other: a change waits for half of one, and for a sync.
	paced := simulate(proxy{fixed: 100 * time.Millisecond, minSync: time.Second}, 1000, 1)
	near("syncs a second", paced.syncs, 1)
	near("share of the time", paced.busy, 0.1)
	near("median delay", paced.delay.Median(), 0.6)
	near("p99", paced.delay.Quantile(0.99), 1.09)

	// Work without end: a sync takes 1 s and what came in the one before.
	full := simulate(proxy{fixed: time.Second, each: time.Millisecond / 2}, 1000, 1)
	near("share of the time", full.busy, 1)
	near("syncs a second", full.syncs, 0.5)
}

// A slice that holds more takes more, by what an endpoint takes.
func TestEventSize(t *testing.T) {
	var last int
	for _, endpoints := range []int{1, 10, 100} {
		n, err := eventSize(newSlice(endpoints))
		if err != nil || n < last+60*endpoints/2 {
			t.Errorf("%d endpoints: %d bytes, %v", endpoints, n, err)
		}
		last = n
	}
}
