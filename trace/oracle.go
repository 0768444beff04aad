package trace

import (
	"math/big"
	"strings"
)

// oracle makes a walk repeatable. A walk asks it at every fork; the first
// answer is the first option, and after the walk has ended advance turns the
// last fork that has options left. Walking again until advance fails visits
// every path once, so that the walk itself needs no copies of its state.
type oracle struct {
	path []fork
	at   int
	memo map[string]bool
}

// fork is one place where a walk may go several ways.
type fork struct {
	shares []*big.Rat // of each option
	picked int
	total  *big.Rat // of the path up to and with the picked option
	why    string   // "" for a random choice, else why it is not known
	cond   string   // the condition under which option 0 holds, for history
	reps   []uint32 // what stands for each option, for chosen
}

var (
	one  = big.NewRat(1, 1)
	zero = new(big.Rat)
	half = big.NewRat(1, 2)
)

// pick answers the next fork.
func (o *oracle) pick(shares []*big.Rat, why, cond string) int {
	if o.at == len(o.path) {
		o.path = append(o.path, fork{shares: shares, why: why, cond: cond})
		o.settle()
	}
	f := o.path[o.at]
	o.at++
	return f.picked
}

// settle computes the share of the path that ends in the last fork.
func (o *oracle) settle() {
	n := len(o.path) - 1
	f := &o.path[n]
	before := one
	if n > 0 {
		before = o.path[n-1].total
	}
	f.total = new(big.Rat).Mul(before, f.shares[f.picked])
}

// random forks by chance: option 0 happens with the given share. A share of 0
// or 1 is no fork.
func (o *oracle) random(share *big.Rat) bool {
	switch {
	case share.Sign() <= 0:
		return false
	case share.Cmp(one) >= 0:
		return true
	}
	if o.at < len(o.path) { // decided already: the shares are known
		o.at++
		return o.path[o.at-1].picked == 0
	}
	return o.pick([]*big.Rat{share, new(big.Rat).Sub(one, share)}, "", "") == 0
}

// among forks by chance between options of given weights.
func (o *oracle) among(weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	shares := make([]*big.Rat, len(weights))
	for i, w := range weights {
		shares[i] = big.NewRat(int64(w), int64(sum))
	}
	return o.pick(shares, "", "")
}

// chosen forks by chance between options that are worked out only when the
// walk comes here first: their weights, and a number that stands for each.
func (o *oracle) chosen(options func() (weights []int, reps []uint32)) uint32 {
	if o.at == len(o.path) {
		weights, reps := options()
		at := o.at
		o.among(weights)
		o.path[at].reps = reps
		return reps[o.path[at].picked]
	}
	f := &o.path[o.at]
	o.at++
	return f.reps[f.picked]
}

// unsure forks because something is not known. Both branches get half of the
// share, which is no knowledge but keeps the sum at 1. The same key gets the
// same answer within one walk; "!" in front of a key asks for the opposite.
func (o *oracle) unsure(key, why string) bool {
	key, opposite := strings.CutPrefix(key, "!")
	if v, ok := o.memo[key]; ok && key != "" {
		return v != opposite
	}
	v := o.pick([]*big.Rat{half, half}, why, "") == 0
	if key != "" {
		if o.memo == nil {
			o.memo = map[string]bool{}
		}
		o.memo[key] = v != opposite
	}
	return v
}

// decided gives the answer a walk has already got to a question.
func (o *oracle) decided(key string) (answer, ok bool) {
	answer, ok = o.memo[key]
	return answer, ok
}

// history forks on what happened before the packet: the branch in which the
// condition holds is followed with share 0, the other keeps all of it.
func (o *oracle) history(cond string) bool {
	return o.pick([]*big.Rat{zero, one}, "", cond) == 0
}

// advance prepares the next path; false when all were walked.
func (o *oracle) advance() bool {
	o.at = 0
	clear(o.memo)
	for n := len(o.path); n > 0; n-- {
		f := &o.path[n-1]
		if f.picked+1 < len(f.shares) {
			f.picked++
			o.path = o.path[:n]
			o.settle()
			return true
		}
	}
	return false
}

// share is the share of the path walked.
func (o *oracle) share() *big.Rat {
	if n := len(o.path); n > 0 {
		return o.path[n-1].total
	}
	return one
}

// doubts lists why the path is not certain, and the conditions it needs.
func (o *oracle) doubts() (whys, conds []string) {
	for _, f := range o.path {
		if f.why != "" {
			whys = append(whys, f.why)
		}
		if f.cond != "" && f.picked == 0 {
			conds = append(conds, f.cond)
		}
	}
	return whys, conds
}
