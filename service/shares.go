package service

import (
	"cmp"
	"slices"
)

// Algorithm is how new connections are spread over endpoints.
type Algorithm uint8

// The algorithms. Random is the zero value, and kube-proxy's.
const (
	Random     Algorithm = iota
	RoundRobin           // one endpoint after the other
)

func (a Algorithm) String() string { return [...]string{"random", "round-robin"}[a] }

// Weight is the share of new connections that an endpoint gets beside others: 3 has
// three times that of 1. The zero value is the usual weight, which is 1.
type Weight int16

// Weightless endpoints get no new connections while others of their list do.
const Weightless Weight = -1

// MaxWeight is the largest Weight.
const MaxWeight Weight = 1000

// Value is the weight as a number, 0 to MaxWeight.
func (w Weight) Value() int {
	switch w {
	case 0:
		return 1
	case Weightless:
		return 0
	}
	return int(w)
}

// Warmth is how far a fresh endpoint has come on its way to its full share, in
// tenths. The zero value is all the way.
type Warmth uint8

// WarmthSteps is the number of steps to the full share.
const WarmthSteps = 10

// tenths is the part of the full share.
func (w Warmth) tenths() int {
	if w == 0 {
		return WarmthSteps
	}
	return int(w)
}

// withWeight leaves out who has no weight, unless nobody has any.
func withWeight(list []Endpoint, reason string) ([]Endpoint, string) {
	weightless := func(e Endpoint) bool { return e.Weight == Weightless }
	if !slices.ContainsFunc(list, weightless) {
		return list, reason
	}
	left := filter(list, func(e Endpoint) bool { return !weightless(e) })
	if len(left) == 0 {
		return list, reason + "; none has a weight, so all are alike"
	}
	return left, reason + "; those of weight 0 are left out"
}

// LeastSlots and SlotsPerEndpoint bound the sum of Ratios: it is at most the larger
// of LeastSlots and SlotsPerEndpoint for each endpoint.
const (
	LeastSlots       = 1024
	SlotsPerEndpoint = 4
)

// Ratios returns the parts of new connections that endpoints get, in small whole
// numbers above 0: all 1 where all are alike. Where weight and warmth cannot be had
// exactly within the bound, each is off by less than one part, or is one part where
// less was meant.
func Ratios(endpoints []Endpoint) []int {
	out := make([]int, len(endpoints))
	if alike(endpoints) {
		for i := range out {
			out[i] = 1
		}
		return out
	}
	sum, divisor := 0, 0
	for i, e := range endpoints {
		out[i] = e.part()
		sum += out[i]
		divisor = greatestDivisor(divisor, out[i])
	}
	bound := max(LeastSlots, SlotsPerEndpoint*len(out))
	if sum/divisor > bound {
		apportion(out, sum, bound)
		divisor = 0
		for _, r := range out {
			divisor = greatestDivisor(divisor, r)
		}
	}
	for i := range out {
		out[i] /= divisor
	}
	return out
}

// part is what an endpoint is due beside others.
func (e Endpoint) part() int { return max(e.Weight.Value(), 1) * e.Warmth.tenths() }

func alike(endpoints []Endpoint) bool {
	return !slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.part() != endpoints[0].part() })
}

func greatestDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// apportion scales parts with a sum to at most seats: each gets what it is due
// rounded down, at least 1, and what is left goes by the largest remainder.
func apportion(parts []int, sum, seats int) {
	type due struct{ at, rest int }
	left := seats
	rest := make([]due, 0, len(parts))
	for i, p := range parts {
		if parts[i] = p * seats / sum; parts[i] == 0 {
			parts[i] = 1
		} else {
			rest = append(rest, due{i, p * seats % sum})
		}
		left -= parts[i]
	}
	slices.SortStableFunc(rest, func(a, b due) int { return cmp.Compare(b.rest, a.rest) })
	for i := range min(max(left, 0), len(rest)) {
		parts[rest[i].at]++
	}
}

// Slots returns the endpoints once for each of their Ratios, as evenly spread as can
// be. To take one of the slots by chance, or one after the other, gives each endpoint
// its share. Where all are alike it is the list itself.
func Slots(endpoints []Endpoint) []Endpoint {
	if alike(endpoints) {
		return endpoints
	}
	ratios := Ratios(endpoints)
	n := 0
	for _, r := range ratios {
		n += r
	}
	// The k-th of r slots of an endpoint stands at (2k+1)/2r of the way.
	type place struct {
		endpoint, k, of int
	}
	places := make([]place, 0, n)
	for i, r := range ratios {
		for k := range r {
			places = append(places, place{i, 2*k + 1, r})
		}
	}
	slices.SortStableFunc(places, func(a, b place) int { return cmp.Compare(a.k*b.of, b.k*a.of) })
	out := make([]Endpoint, n)
	for i, p := range places {
		out[i] = endpoints[p.endpoint]
	}
	return out
}
