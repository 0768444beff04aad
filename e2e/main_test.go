package e2e

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan/e2e/program"
)

// binary is the portolan under test; see TestMain.
var binary string

// TestMain builds the binary once, runs the tests and says what they did.
// PORTOLAN_E2E_BINARY names a binary to test instead, PORTOLAN_E2E_SUMMARY a file
// that also gets the summary.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("e2e: skipped: network namespaces and their rules need root")
		return m.Run()
	}
	path, remove, err := program.Binary()
	if err != nil {
		fmt.Println("e2e:", err)
		return 1
	}
	defer remove()
	binary = path
	// Labs wait for packets more than they compute, so more of them than cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Println("e2e:", err)
		return 1
	}
	code := m.Run()
	summary, complete := did.summary()
	fmt.Print(summary)
	if file := os.Getenv("PORTOLAN_E2E_SUMMARY"); file != "" {
		if err := os.WriteFile(file, []byte(summary), 0o644); err != nil {
			fmt.Println("e2e:", err)
			return 1
		}
	}
	// Who names single tests does not want to hear that the others did not run.
	filtered := flag.Lookup("test.run").Value.String()+flag.Lookup("test.skip").Value.String()+flag.Lookup("test.list").Value.String() != ""
	if code == 0 && !complete && !filtered {
		fmt.Println("e2e: a group of tests ran nothing")
		return 1
	}
	return code
}

// did counts what ran.
var did = tally{groups: map[string]count{}, cells: map[string]cellResult{}, red: map[string]map[string]int{}}

type count struct {
	scenarios, flows, tries int
	packets                 uint64
}

// tally adds up, group by group, what the tests did.
type tally struct {
	mu     sync.Mutex
	groups map[string]count
	cells  map[string]cellResult     // by backend
	red    map[string]map[string]int // by backend, then mutation: cells that failed
}

func (t *tally) addCells(backend string, r cellResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cells[backend] = r
}

func (t *tally) addMutation(backend, name string, red int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.red[backend] == nil {
		t.red[backend] = map[string]int{}
	}
	t.red[backend][name] = red
}

// add counts one scenario of a group.
func (t *tally) add(group string, c count) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.groups[group]
	sum.scenarios += c.scenarios
	sum.flows += c.flows
	sum.tries += c.tries
	sum.packets += c.packets
	t.groups[group] = sum
}

// groups are what must have run for every backend; soloGroups, once.
var (
	groups     = []string{"flows", "cells", "shares", "affinity", "changes", "restart", "cleanup", "conntrack"}
	soloGroups = []string{"demo", "mutations", "offline", "podnet", "verify"}
)

// summary lists the groups; complete tells that each one did something.
func (t *tally) summary() (text string, complete bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	expected := slices.Clone(soloGroups)
	for _, b := range backends {
		for _, g := range groups {
			expected = append(expected, g+"/"+b.name)
		}
	}
	complete = true
	for _, name := range expected {
		if t.groups[name].flows == 0 {
			t.groups[name] = count{}
			complete = false
		}
	}
	var b strings.Builder
	var sum count
	row := func(name string, c count) {
		fmt.Fprintf(&b, "%-28s %9d %9d %9d %9d\n", name, c.scenarios, c.flows, c.tries, c.packets)
	}
	fmt.Fprintf(&b, "%-28s %9s %9s %9s %9s\n", "e2e", "scenarios", "flows", "tries", "packets")
	for _, name := range slices.Sorted(maps.Keys(t.groups)) {
		c := t.groups[name]
		row(name, c)
		sum.scenarios += c.scenarios
		sum.flows += c.flows
		sum.tries += c.tries
		sum.packets += c.packets
	}
	row("total", sum)
	t.cellSummary(&b)
	return b.String(), complete
}

// cellSummary lists what became of the cells, and how many of them each mutation of
// the rules turned red.
func (t *tally) cellSummary(b *strings.Builder) {
	reasons, err := readReasons()
	if err != nil {
		fmt.Fprintln(b, err)
		return
	}
	fmt.Fprintf(b, "\n%-28s %9s %9s %9s %9s\n", "cells", "expected", "run", "skipped", "failed")
	for _, name := range slices.Sorted(maps.Keys(t.cells)) {
		r := t.cells[name]
		skipped := 0
		for _, n := range r.skipped {
			skipped += n
		}
		fmt.Fprintf(b, "%-28s %9d %9d %9d %9d\n", name, r.expected, r.run, skipped, len(r.failed))
		for _, word := range slices.Sorted(maps.Keys(r.skipped)) {
			fmt.Fprintf(b, "  %d skipped: %s\n", r.skipped[word], reasons[word])
		}
	}
	for _, backend := range slices.Sorted(maps.Keys(t.red)) {
		fmt.Fprintf(b, "\n%-50s %9s\n", "mutations of "+backend, "red cells")
		for _, name := range slices.Sorted(maps.Keys(t.red[backend])) {
			fmt.Fprintf(b, "  %-48s %9d\n", name, t.red[backend][name])
		}
	}
}
