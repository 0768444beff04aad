package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/bench/figures"
)

// The report in docs is that of the data: nobody edits it by hand, and no data
// comes without it. `make report` makes it anew.
func TestDocs(t *testing.T) {
	files, err := report("../results")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil || string(got) != string(want) {
			t.Errorf("docs/%s is not what bench/results give (error %v): run make report", name, err)
		}
	}
}

// A goal that is missed says so, and what was not measured has no figure.
func TestPage(t *testing.T) {
	w := figures.Workload{Services: 10000, Endpoints: 10}
	runs := []figures.Run{
		{Workload: w, Product: figures.KubeProxy, Mode: figures.Nftables, Recorded: "elsewhere", Values: map[figures.Row][]float64{figures.FirstSync: {20}}},
		{Workload: w, Product: figures.Portolan, Mode: figures.Nftables, Machine: "a machine", Commit: "abc", Values: map[figures.Row][]float64{
			figures.FirstSync: {0.5}, figures.OwnMemory: {119},
			figures.Connect(figures.ConnectMedian, figures.Bare): {20}, figures.Connect(figures.ConnectMedian, figures.Last): {25},
		}},
	}
	var out strings.Builder
	if err := write(&out, runs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| nftables | 0.500 | - | - | 119 | - | 1.25x |",
		"| 10,000 Services x 10, plain | nftables | first full sync | 50x | 40.0x | missed |",
		"| 10,000 Services x 10, plain | nftables | peak memory, process alone | under 120 | 119 MiB | reached |",
		"| 10,000 Services x 10, plain | nftables | connect to the last Service, median | at most 1.3x a bare pod | 1.25x | reached |",
		"20.0, recorded",
		"1 runs, commit abc",
		"- elsewhere",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "NaN") || strings.Contains(out.String(), "Inf") {
		t.Errorf("what was not measured has a figure:\n%s", out.String())
	}
}

func TestPlotsNeedData(t *testing.T) {
	for _, p := range plots {
		if _, err := p.draw(nil); err == nil {
			t.Errorf("%s is drawn of nothing", p.file)
		}
	}
}

func TestGrowing(t *testing.T) {
	var runs []figures.Run
	for _, services := range []int{10000, 1000, 5000} {
		for _, v := range []float64{1, 2, 3} {
			runs = append(runs, figures.Run{Workload: figures.Workload{Services: services, Endpoints: 10}, Product: figures.Portolan, Mode: figures.Nftables,
				Values: map[figures.Row][]float64{figures.FirstSync: {v * float64(services)}}})
		}
	}
	points := growing(runs, figures.Portolan, figures.Nftables, figures.FirstSync)
	if len(points) != 3 || points[0] != (figures.Point{Size: 1000, Cost: 2000}) || points[2] != (figures.Point{Size: 10000, Cost: 20000}) {
		t.Errorf("got %v", points)
	}
	if got := exponent(points); got != "S^1.00" {
		t.Errorf("grows by %s", got)
	}
}
