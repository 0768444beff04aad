package figures

import (
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWorkload(t *testing.T) {
	for _, text := range []string{"5000x10", "45000x1", "1000mix"} {
		w, err := ParseWorkload(text)
		if err != nil || w.String() != text {
			t.Errorf("%s: got %v, %v", text, w, err)
		}
	}
	for _, text := range []string{"", "x", "mix", "5000", "5000x", "5000x0", "x10", "10x10", "5000mixx", "70000x1"} {
		if w, err := ParseWorkload(text); err == nil {
			t.Errorf("%q is taken for %v", text, w)
		}
	}
}

// What is written is read again, and nothing is lost that a measurement can mean.
func TestLines(t *testing.T) {
	want := Run{Taken: time.Unix(1e9, 0).UTC(), Commit: "abc", Load: 1.5, Workload: Workload{5000, 10}, Product: Portolan, Mode: Nftables}
	want.Add(Spaced, 12.345678)
	want.Add(Spaced, 0)
	want.Add(StormMemory, -0.00012345)
	want.Add(LastVIP, 123456)
	if got := want.Values[Spaced][0]; got != 12.35 {
		t.Errorf("12.345678 is kept as %v", got)
	}
	dir := t.TempDir()
	for range 2 {
		if err := Append(filepath.Join(dir, "a.jsonl"), want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFolder(dir)
	if err != nil || !reflect.DeepEqual(got, []Run{want, want}) {
		t.Errorf("got %+v, %v\nwant %+v twice", got, err, want)
	}
	for _, line := range []string{
		`{"workload":"5000x10","product":"portolan","mode":"nftables","values":{"speed":[1]}}`,
		`{"workload":"5000x10","product":"portolan","mode":"ipvs","values":{}}`,
		`{"workload":"5000x10","product":"other","mode":"nftables","values":{}}`,
		`{"workload":"many","product":"portolan","mode":"nftables","values":{}}`,
		`{"colour":1}`, `{`,
	} {
		if got, err := Read(strings.NewReader(line)); err == nil {
			t.Errorf("%s is taken for %+v", line, got)
		}
	}
	if _, err := ReadFolder(t.TempDir()); err == nil {
		t.Error("a folder without data is taken")
	}
}

func TestValues(t *testing.T) {
	var hundred []float64
	for i := range 100 {
		hundred = append(hundred, float64(100-i))
	}
	for _, c := range []struct {
		of   []float64
		text string
	}{
		{nil, "-"}, {[]float64{0}, "0"}, {[]float64{3}, "3.00"}, {[]float64{3, 1, 2}, "2.00 (1.00-3.00)"},
		{[]float64{4, 2}, "3.00 (2.00-4.00)"}, {[]float64{0.01234}, "0.0123"}, {[]float64{1234567}, "1,234,567"},
		{[]float64{999.7}, "1,000"}, {[]float64{-5.5}, "-5.50"}, {hundred, "50.5 (1.00-100, p99 99.0)"},
	} {
		if got := Sorted(c.of).String(); got != c.text {
			t.Errorf("%v: %q, want %q", c.of, got, c.text)
		}
	}
	if v := Values(nil); !math.IsNaN(v.Median()) || !math.IsNaN(v.Quantile(0.5)) {
		t.Error("no values have a median")
	}
}

func TestGrow(t *testing.T) {
	for _, want := range []Growth{{2, 1}, {0.5, 2}, {7, 0}} {
		var points []Point
		for _, size := range []float64{1000, 5000, 10000} {
			points = append(points, Point{size, want.At(size)})
		}
		got, ok := Grow(points)
		if !ok || math.Abs(got.Exponent-want.Exponent) > 1e-9 || math.Abs(got.Factor/want.Factor-1) > 1e-9 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	for _, points := range [][]Point{nil, {{1000, 1}}, {{1000, 1}, {1000, 2}}} {
		if got, ok := Grow(points); ok {
			t.Errorf("%v grow by %+v", points, got)
		}
	}
}

func TestTable(t *testing.T) {
	w := Workload{5000, 10}
	runs := []Run{
		{Workload: w, Product: KubeProxy, Mode: Nftables, Values: map[Row][]float64{Spaced: {100, 300}, IdleWrites: {4}}},
		{Workload: w, Product: KubeProxy, Mode: Nftables, Values: map[Row][]float64{Spaced: {200}}},
		{Workload: w, Product: KubeProxy, Mode: Nftables, Recorded: "elsewhere", Values: map[Row][]float64{FirstSync: {3.6, 5}}},
		{Workload: w, Product: KubeProxy, Mode: Legacy, Values: map[Row][]float64{FirstSync: {3}}},
		{Workload: w, Product: Portolan, Mode: Nftables, Values: map[Row][]float64{Spaced: {10}, FirstSync: {0.6}, IdleWrites: {0}}},
		{Workload: w, Product: Portolan, Mode: Compact, Values: map[Row][]float64{FirstSync: {0.5}}},
		{Workload: Workload{Services: 5000}, Product: Portolan, Mode: Nftables, Values: map[Row][]float64{FirstSync: {0.1}}},
	}
	var out strings.Builder
	if err := Table(&out, runs, w); err != nil {
		t.Fatal(err)
	}
	want := `| mode | what | unit | kube-proxy | Portolan | better by | goal |
|---|---|---|---|---|---|---|
| nftables | first full sync | s | 4.30 (3.60-5.00), recorded | 0.600 | 7.17x | 10x, missed |
| nftables | change to traffic, spaced | ms | 200 (100-300) | 10.0 | 20.0x | 20x |
| nftables | idle: kernel writes | writes | 4.00 | 0 |  | 0 |
| iptables-legacy-compact | first full sync | s | 3.00 | 0.500 | 6.00x | 5x |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestGoals(t *testing.T) {
	w := Workload{10000, 10}
	values := func(of ...float64) Values { return Sorted(of) }
	for _, c := range []struct {
		w                Workload
		row              Row
		peer, ours, bare Values
		reached          bool
	}{
		{w, FirstSync, values(50), values(1), nil, true},
		{w, FirstSync, values(49), values(1), nil, false},
		{w, FirstSync, nil, values(1), nil, false},
		{w, Restart, nil, values(1.9), nil, true},
		{w, Busy, nil, append(make(Values, 99), 30), nil, true},
		{w, Busy, nil, append(make(Values, 98), 30, 30), nil, false},
		{w, IdleWrites, nil, values(0), nil, true},
		{w, IdleWrites, nil, values(1), nil, false},
		{w, Connect(ConnectMedian, Last), nil, values(26), values(20), true},
		{w, Connect(ConnectMedian, Last), nil, values(27), values(20), false},
		{Workload{45000, 1}, OwnMemory, nil, values(251), nil, false},
	} {
		g, found := GoalOf(c.w, Nftables, c.row)
		if !found {
			t.Errorf("%v: %s has no goal", c.w, c.row)
			continue
		}
		if got, reached := g.Reached(c.peer, c.ours, c.bare); reached != c.reached {
			t.Errorf("%v, %s: goal %v, got %v, reached %v", c.w, c.row, g, got, reached)
		}
	}
	if g, found := GoalOf(Workload{1000, 10}, Nftables, FirstSync); found {
		t.Errorf("1,000 Services have the goal %v", g)
	}
}
