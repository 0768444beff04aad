package figures

import "math"

// A measure is what a goal is about.
type measure int

const (
	timesBetter measure = iota // kube-proxy's median through Portolan's, at least
	median                     // at most
	p99                        // at most
	timesBare                  // the median through that to Bare, at most
)

// A Goal is what Portolan should reach in one row.
type Goal struct {
	measure measure
	limit   float64
}

func (g Goal) String() string {
	switch n := Number(g.limit); g.measure {
	case timesBetter:
		return trim(n) + "x"
	case p99:
		return "p99 under " + trim(n)
	case timesBare:
		return "at most " + trim(n) + "x a bare pod"
	default:
		if g.limit == 0 {
			return "0"
		}
		return "under " + trim(n)
	}
}

// cell names one cell of the tables. Endpoints -1 means ten of each Service, and
// the mix.
type cell struct {
	services, endpoints int
	mode                Mode
	row                 Row
}

const tenOrMix = -1

var goals = map[cell]Goal{
	{5000, tenOrMix, Nftables, FirstSync}:   {timesBetter, 10},
	{10000, tenOrMix, Nftables, FirstSync}:  {timesBetter, 50},
	{5000, tenOrMix, Nftables, LastVIP}:     {timesBetter, 5},
	{10000, tenOrMix, Nftables, LastVIP}:    {timesBetter, 5},
	{5000, tenOrMix, Nftables, Spaced}:      {timesBetter, 20},
	{10000, tenOrMix, Nftables, Spaced}:     {timesBetter, 50},
	{5000, tenOrMix, Nftables, BackToBack}:  {timesBetter, 100},
	{10000, tenOrMix, Nftables, BackToBack}: {timesBetter, 100},
	{10000, tenOrMix, Nftables, Busy}:       {p99, 20},
	{10000, tenOrMix, Nftables, ChangeCPU}:  {timesBetter, 100},
	{10000, tenOrMix, Nftables, PeakMemory}: {timesBetter, 5},
	{10000, 10, Nftables, OwnMemory}:        {median, 120},
	{10000, 10, Nftables, StormCPU}:         {median, 10},
	{10000, 10, Nftables, StormLast}:        {median, 20},
	{10000, 10, Nftables, StormFailed}:      {median, 0},
	{45000, 1, Nftables, OwnMemory}:         {median, 250},
	{5006, 50, Nftables, OwnMemory}:         {median, 500},
	{45000, 1, Nftables, FirstSync}:         {median, 10},
	{5006, 50, Nftables, FirstSync}:         {median, 10},

	{5000, tenOrMix, Legacy, FirstSync}:   {timesBetter, 1.2},
	{10000, tenOrMix, Legacy, FirstSync}:  {timesBetter, 1.5},
	{5000, tenOrMix, Legacy, Spaced}:      {timesBetter, 1.2},
	{10000, tenOrMix, Legacy, Spaced}:     {timesBetter, 1.2},
	{5000, tenOrMix, Compact, FirstSync}:  {timesBetter, 5},
	{10000, tenOrMix, Compact, FirstSync}: {timesBetter, 5},
	{5000, tenOrMix, Compact, Spaced}:     {timesBetter, 3},
	{10000, tenOrMix, Compact, Spaced}:    {timesBetter, 3},

	{5000, tenOrMix, CompactNFT, FirstSync}: {median, 10},

	{10000, tenOrMix, Nftables, Connect(ConnectMedian, Last)}: {timesBare, 1.3},
	{10000, tenOrMix, Compact, Connect(ConnectMedian, Last)}:  {timesBare, 1.3},
}

// GoalOf is the goal of a row, if it has one.
func GoalOf(w Workload, m Mode, row Row) (Goal, bool) {
	switch {
	case row == RestartWrites || row == IdleWrites:
		return Goal{median, 0}, true
	case row == Restart && w.Services == 10000:
		return Goal{median, 2}, true
	}
	if g, found := goals[cell{w.Services, w.Endpoints, m, row}]; found {
		return g, true
	}
	if w.Mix() || w.Endpoints == 10 {
		g, found := goals[cell{w.Services, tenOrMix, m, row}]
		return g, found
	}
	return Goal{}, false
}

// Relative tells whether the goal is how many times as much, not a value.
func (g Goal) Relative() bool { return g.measure == timesBetter || g.measure == timesBare }

// Reached tells whether the values meet the goal, and what was held against it;
// NaN when something is missing for that.
func (g Goal) Reached(peer, ours, bare Values) (got float64, reached bool) {
	switch g.measure {
	case timesBetter:
		got = peer.Median() / ours.Median()
		return got, got >= g.limit
	case p99:
		got = ours.Quantile(0.99)
	case timesBare:
		got = ours.Median() / bare.Median()
	case median:
		got = ours.Median()
	}
	return got, !math.IsNaN(got) && got <= g.limit
}
