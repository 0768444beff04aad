package conntrack

import (
	"math"
	"net/netip"
	"time"
)

// Shedding is what can be done about one endpoint that carries more than its share.
//
// A connection that is forgotten by the kernel is balanced anew with the next packet
// of its client. With the chance that the endpoint has anyway, it goes on unbroken;
// else another endpoint resets it, its client connects again, and that connection is
// balanced, too.
type Shedding struct {
	Endpoint netip.AddrPort
	Live     int
	Expected float64
	// MostResets bounds how many connections may be reset: the allowed fraction of
	// Live.
	MostResets int
	// Resets and Moved are what is to be expected: connections that are reset, and
	// those of them that come back to another endpoint.
	Resets, Moved float64
}

// Plan is what can be done about one Service port.
type Plan struct {
	Load  Load
	Sheds []Shedding // the ready endpoints that carry at least one too many; others drain
}

// PlanRebalance bounds what may happen to a Service port: of the connections of an
// overloaded endpoint at most a fraction, above 0 and up to 1, may be reset.
func PlanRebalance(l Load, fraction float64) Plan {
	out := Plan{Load: l}
	for _, e := range l.Endpoints {
		share := 0.0
		if l.Live > 0 {
			share = e.Expected / float64(l.Live)
		}
		excess := float64(e.Live) - e.Expected
		if e.State != Ready || excess < 1 || share >= 1 {
			continue
		}
		most := int(math.Floor(fraction*float64(e.Live) + 1e-9))
		resets := min(float64(most), excess/(1-share))
		out.Sheds = append(out.Sheds, Shedding{Endpoint: e.Addr, Live: e.Live, Expected: e.Expected,
			MostResets: most, Resets: resets, Moved: resets * (1 - share)})
	}
	return out
}

// MostResets bounds what all of it may cost.
func (p Plan) MostResets() (n int) {
	for _, s := range p.Sheds {
		n += s.MostResets
	}
	return n
}

// Resets is what it is expected to cost.
func (p Plan) Resets() (n float64) {
	for _, s := range p.Sheds {
		n += s.Resets
	}
	return n
}

// SkewAfter is the Skew that is to be expected then.
func (p Plan) SkewAfter() float64 {
	if p.Load.Live == 0 {
		return 0
	}
	moved := 0.0
	for _, s := range p.Sheds {
		moved += s.Moved
	}
	return max(0, p.Load.Misplaced()-moved) / float64(p.Load.Live)
}

// Takes is the least time for it at so many connections a second.
func (p Plan) Takes(rate float64) time.Duration {
	return time.Duration(p.Resets() / rate * float64(time.Second))
}
