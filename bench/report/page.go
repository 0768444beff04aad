package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/template"

	"portolan/bench/figures"
)

//go:embed page.md.tmpl
var pageText string

var names = map[figures.Product]string{figures.Portolan: "Portolan", figures.KubeProxy: "kube-proxy"}

// page is what the template asks for figures and tables.
type page struct{ runs []figures.Run }

func write(out io.Writer, runs []figures.Run) error {
	t, err := template.New("performance.md").Parse(pageText)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := t.Execute(out, page{runs}); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Median is a median as text.
func (p page) Median(product figures.Product, mode figures.Mode, workload string, row figures.Row) (string, error) {
	v, err := p.values(product, mode, workload, row)
	if err != nil || len(v) == 0 {
		return "-", err
	}
	return figures.Number(v.Median()), nil
}

// P99 is the value that 99 of 100 lie at or below, as text.
func (p page) P99(product figures.Product, mode figures.Mode, workload string, row figures.Row) (string, error) {
	v, err := p.values(product, mode, workload, row)
	if err != nil || len(v) == 0 {
		return "-", err
	}
	return figures.Number(v.Quantile(0.99)), nil
}

// Better says how many times better Portolan is than kube-proxy.
func (p page) Better(mode figures.Mode, workload string, row figures.Row) (string, error) {
	h, err := figures.HeadingOf(row)
	if err != nil {
		return "", err
	}
	ours, err := p.values(figures.Portolan, mode, workload, row)
	if err != nil {
		return "", err
	}
	peer, err := p.values(figures.KubeProxy, mode.Peer(), workload, row)
	if text := figures.Better(h, peer, ours); text != "" {
		return text, err
	}
	return "-", err
}

// Bare says how many times as much a figure of connections is as that of
// connections to a pod behind a node without rules, the median over runs.
func (p page) Bare(product figures.Product, mode figures.Mode, workload string, row figures.Row) (string, error) {
	w, err := figures.ParseWorkload(workload)
	if err != nil {
		return "", err
	}
	var ratios []float64
	for _, r := range p.runs {
		if r.Workload != w || r.Product != product || r.Mode != mode || len(r.Values[row]) == 0 {
			continue
		}
		if bare := r.Values[figures.BareOf(row)]; len(bare) > 0 && bare[0] > 0 {
			ratios = append(ratios, r.Values[row][0]/bare[0])
		}
	}
	if len(ratios) == 0 {
		return "-", nil
	}
	return figures.Number(figures.Sorted(ratios).Median()) + "x", nil
}

func (p page) values(product figures.Product, mode figures.Mode, workload string, row figures.Row) (figures.Values, error) {
	w, err := figures.ParseWorkload(workload)
	if err != nil {
		return nil, err
	}
	if _, err := figures.HeadingOf(row); err != nil {
		return nil, err
	}
	return figures.Collect(p.runs, w, product, mode, row), nil
}

// Modes are those in which Portolan was measured.
func (p page) Modes() (out []figures.Mode) {
	for _, m := range figures.Modes {
		if slices.ContainsFunc(p.runs, func(r figures.Run) bool { return r.Product == figures.Portolan && r.Mode == m }) {
			out = append(out, m)
		}
	}
	return out
}

// Has tells whether Portolan was measured in a mode.
func (p page) Has(mode figures.Mode) bool { return slices.Contains(p.Modes(), mode) }

// Products are both.
func (p page) Products() []figures.Product {
	return []figures.Product{figures.Portolan, figures.KubeProxy}
}

// Compared are the rows in which the products are compared at a glance.
func (p page) Compared() (out []figures.Heading) {
	for _, row := range []figures.Row{figures.FirstSync, figures.LastVIP, figures.Spaced, figures.BackToBack, figures.ChangeCPU, figures.PeakMemory, figures.Restart} {
		h, _ := figures.HeadingOf(row) // it has one
		out = append(out, h)
	}
	return out
}

// Busy are the workloads of which changes beside others and connections are shown.
func (p page) Busy() []string { return []string{"1000x10", "5000x10", "10000x10", "10000mix"} }

// Workloads are those that were measured, small ones first, the mix after plain.
func (p page) Workloads() []figures.Workload {
	all := map[figures.Workload]bool{}
	for _, r := range p.runs {
		if r.Product == figures.Portolan {
			all[r.Workload] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b figures.Workload) int {
		return cmp.Or(cmp.Compare(a.Services*max(1, a.Endpoints), b.Services*max(1, b.Endpoints)), -cmp.Compare(a.Endpoints, b.Endpoints))
	})
}

// Table is the table of a workload.
func (p page) Table(w figures.Workload) (string, error) {
	var text strings.Builder
	err := figures.Table(&text, p.runs, w)
	return text.String(), err
}

// Growth is a table of how costs grow with the number of Services.
func (p page) Growth() string {
	rows := []figures.Row{figures.FirstSync, figures.Restart, figures.OwnMemory, figures.KernelMemory, figures.Spaced, figures.ChangeCPU}
	var text strings.Builder
	text.WriteString("| mode | product | sizes")
	for _, row := range rows {
		h, _ := figures.HeadingOf(row) // it has one
		text.WriteString(" | " + h.Title)
	}
	text.WriteString(" |\n|---|---|---" + strings.Repeat("|---", len(rows)) + "|\n")
	for _, mode := range figures.Modes {
		for _, product := range []figures.Product{figures.Portolan, figures.KubeProxy} {
			if sizes := growing(p.runs, product, mode, figures.FirstSync); len(sizes) > 1 {
				fmt.Fprintf(&text, "| %s | %s | %s-%s", mode, names[product], figures.Count(int(sizes[0].Size)), figures.Count(int(sizes[len(sizes)-1].Size)))
				for _, row := range rows {
					text.WriteString(" | " + exponent(growing(p.runs, product, mode, row)))
				}
				text.WriteString(" |\n")
			}
		}
	}
	return text.String()
}

func exponent(points []figures.Point) string {
	g, found := figures.Grow(points)
	if !found {
		return "-"
	}
	return fmt.Sprintf("S^%.2f", g.Exponent)
}

// Verdicts is a table of all goals that something was measured for.
func (p page) Verdicts() string {
	var text strings.Builder
	text.WriteString("| workload | mode | what | goal | measured | |\n|---|---|---|---|---|---|\n")
	for _, w := range p.Workloads() {
		for _, m := range figures.Modes {
			for _, h := range figures.Headings {
				text.WriteString(p.verdict(w, m, h))
			}
		}
	}
	return text.String()
}

// verdict is a line of the table, empty where there is no goal or not enough to
// judge it by.
func (p page) verdict(w figures.Workload, m figures.Mode, h figures.Heading) string {
	goal, found := figures.GoalOf(w, m, h.Row)
	if !found {
		return ""
	}
	of := func(product figures.Product, m figures.Mode, row figures.Row) figures.Values {
		return figures.Collect(p.runs, w, product, m, row)
	}
	got, reached := goal.Reached(of(figures.KubeProxy, m.Peer(), h.Row), of(figures.Portolan, m, h.Row), of(figures.Portolan, m, figures.BareOf(h.Row)))
	if math.IsNaN(got) {
		return ""
	}
	verdict := "missed"
	if reached {
		verdict = "reached"
	}
	measured := figures.Number(got) + " " + h.Unit
	if goal.Relative() {
		measured = figures.Number(got) + "x"
	}
	return fmt.Sprintf("| %s | %s | %s | %v | %s | %s |\n", w.Title(), m, h.Title, goal, measured, verdict)
}

// Machines lists what the runs were taken on, when, and of which commits.
func (p page) Machines() []string {
	type key struct{ machine, commit string }
	first, last, runs := map[key]string{}, map[key]string{}, map[key]int{}
	load := map[key]float64{}
	for _, r := range p.runs {
		if r.Recorded != "" {
			continue
		}
		k, day := key{r.Machine, r.Commit}, r.Taken.Format("2006-01-02 15:04")
		if first[k] == "" || day < first[k] {
			first[k] = day
		}
		last[k], load[k] = max(last[k], day), max(load[k], r.Load)
		runs[k]++
	}
	var out []string
	for k, n := range runs {
		out = append(out, fmt.Sprintf("%s to %s: %d runs, commit %s, load at most %s; %s", first[k], last[k], n, k.commit, figures.Number(load[k]), k.machine))
	}
	slices.Sort(out)
	return out
}

// Sources lists where recorded figures are from.
func (p page) Sources() (out []string) {
	for _, r := range p.runs {
		if r.Recorded != "" && !slices.Contains(out, r.Recorded) {
			out = append(out, r.Recorded)
		}
	}
	return out
}
