package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// results are the values of all runs of one workload.
type results map[product]sampleSet

func (r results) add(p product, s sampleSet) {
	if r[p] == nil {
		r[p] = sampleSet{}
	}
	for row, values := range s {
		r[p][row] = append(r[p][row], values...)
	}
}

// A figure is what is printed of many values: the middle one, the ends, and a note
// when they were not measured here.
type figure struct {
	median, low, high float64
	values            int
	note              string
}

func summarize(values []float64) figure {
	if len(values) == 0 {
		return figure{}
	}
	s := slices.Sorted(slices.Values(values))
	middle := len(s) / 2
	median := s[middle]
	if len(s)%2 == 0 {
		median = (s[middle-1] + s[middle]) / 2
	}
	return figure{median: median, low: s[0], high: s[len(s)-1], values: len(s)}
}

func (f figure) String() string {
	if f.values == 0 && f.note == "" {
		return "-"
	}
	text := number(f.median)
	if f.low != f.high {
		text += " (" + number(f.low) + "-" + number(f.high) + ")"
	}
	if f.note != "" {
		text += ", " + f.note
	}
	return text
}

// number prints three digits that count.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 4), 64)
}

// size is a workload: what its table is about.
type size struct {
	services, endpoints int
	mix                 bool
}

func (s size) String() string {
	if s.mix {
		return fmt.Sprintf("%d Services, mix", s.services)
	}
	return fmt.Sprintf("%d Services x %d endpoints, plain", s.services, s.endpoints)
}

// printTable writes one table, in Markdown.
func printTable(out io.Writer, s size, modes []mode, r results) {
	fmt.Fprintf(out, "\n### %v\n\n", s)
	fmt.Fprintln(out, "| mode | what | unit | kube-proxy | Portolan | kube-proxy / Portolan | goal |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|")
	for _, m := range modes {
		for row := range rows {
			peer, ours := summarize(r[product{true, m}][row]), summarize(r[product{false, m}][row])
			if peer.values == 0 {
				peer = recordedFigure(s, m, row)
			}
			if peer.values == 0 && peer.note == "" && ours.values == 0 {
				continue
			}
			fmt.Fprintf(out, "| %s | %v | %s | %v | %v | %s | %s |\n", m, row, row.unit(), peer, ours, ratio(row, peer, ours), goalOf(s, m, row))
		}
	}
}

// ratio says how many times less the second is.
func ratio(r row, peer, ours figure) string {
	if ours.values == 0 || peer.median == 0 || r == restartWrites || r == idleWrites {
		return ""
	}
	if ours.median == 0 {
		return "all of it"
	}
	return number(peer.median/ours.median) + "x"
}

// A key names one cell of the tables: plain Services with 10 endpoints each, but
// for goals, which count for the mix too.
type key struct {
	services int
	mode     mode
	row      row
}

// goals are how many times less than kube-proxy's a value should be.
var goals = map[key]string{
	{5000, nftables, firstSync}:   "10x",
	{10000, nftables, firstSync}:  "50x",
	{5000, nftables, spaced}:      "20x",
	{10000, nftables, spaced}:     "50x",
	{5000, nftables, backToBack}:  "100x",
	{10000, nftables, backToBack}: "100x",
	{10000, nftables, changeCPU}:  "100x",
	{10000, nftables, memory}:     "5x",
	{10000, nftables, ownMemory}:  "2x",
	{10000, legacy, ownMemory}:    "2x",
	{5000, legacy, firstSync}:     "1.2x",
	{10000, legacy, firstSync}:    "1.5x",
	{5000, legacy, spaced}:        "1.2x",
	{10000, legacy, spaced}:       "1.2x",
	{10000, nftables, restart}:    "under 2 s",
	{10000, legacy, restart}:      "under 2 s",
	{10000, nftables, lastVIP}:    "5x",
	{5000, nftables, lastVIP}:     "5x",
}

func goalOf(s size, m mode, r row) string {
	if r == restartWrites || r == idleWrites {
		return "0"
	}
	return goals[key{s.services, m, r}]
}

// recorded are figures of kube-proxy 1.37.2 from a 2-core machine with kernel
// 6.18: the ends of what several runs gave. They stand in where a run of the peer
// was not asked for.
var recorded = map[key][2]float64{
	{1000, nftables, firstSync}:   {0.27, 0.33},
	{1000, nftables, spaced}:      {28, 28},
	{1000, nftables, backToBack}:  {1037, 1037},
	{1000, nftables, changeCPU}:   {24, 24},
	{1000, nftables, memory}:      {121, 121},
	{1000, legacy, firstSync}:     {0.38, 0.46},
	{1000, legacy, spaced}:        {156, 156},
	{1000, legacy, backToBack}:    {1147, 1147},
	{1000, legacy, changeCPU}:     {157, 157},
	{1000, legacy, memory}:        {120, 120},
	{1000, iptNFT, firstSync}:     {5.7, 6.5},
	{1000, iptNFT, spaced}:        {109, 109},
	{1000, iptNFT, backToBack}:    {1111, 1111},
	{1000, iptNFT, changeCPU}:     {108, 108},
	{1000, iptNFT, memory}:        {148, 148},
	{2000, iptNFT, firstSync}:     {35, 35},
	{2000, iptNFT, spaced}:        {198, 198},
	{2000, iptNFT, changeCPU}:     {190, 190},
	{2000, iptNFT, memory}:        {226, 226},
	{5000, nftables, firstSync}:   {3.6, 5},
	{5000, nftables, spaced}:      {104, 190},
	{5000, nftables, backToBack}:  {1196, 1196},
	{5000, nftables, changeCPU}:   {134, 134},
	{5000, nftables, memory}:      {334, 334},
	{5000, legacy, firstSync}:     {2.6, 2.7},
	{5000, legacy, spaced}:        {792, 878},
	{5000, legacy, backToBack}:    {1831, 1831},
	{5000, legacy, changeCPU}:     {880, 880},
	{5000, legacy, memory}:        {319, 319},
	{5000, iptNFT, firstSync}:     {590, 590}, // not finished then
	{10000, nftables, firstSync}:  {18, 30},
	{10000, nftables, spaced}:     {259, 411},
	{10000, nftables, backToBack}: {1368, 1368},
	{10000, nftables, changeCPU}:  {285, 285},
	{10000, nftables, memory}:     {597, 597},
	{10000, legacy, firstSync}:    {9.5, 10.1},
	{10000, legacy, spaced}:       {1857, 1973},
	{10000, legacy, backToBack}:   {3400, 3400},
	{10000, legacy, changeCPU}:    {1990, 1990},
	{10000, legacy, memory}:       {565, 565},
}

func recordedFigure(s size, m mode, r row) figure {
	ends, found := recorded[key{s.services, m, r}]
	if !found || s.mix || s.endpoints != 10 {
		return figure{}
	}
	f := figure{low: ends[0], high: ends[1], median: (ends[0] + ends[1]) / 2, note: "recorded"}
	if s.services == 5000 && m == iptNFT {
		f.note = "recorded, gave up"
	}
	return f
}

// list splits a flag at its commas.
func list[T ~string](text string) []T {
	var out []T
	for _, t := range strings.Split(text, ",") {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, T(t))
		}
	}
	return out
}
