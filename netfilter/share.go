package netfilter

import (
	"math/big"
)

// oddsUnit is what the kernel's random number is compared with: 31 bits.
const oddsUnit = 1 << 31

// Share is the exact probability of the match. Tools write a decimal, the
// kernel keeps 31 bits, so 1/3 comes back as 0.33333333349: the answer is the
// simplest fraction within one unit of the kept number if its denominator is
// below 32768, because that is what was meant; else the kept number itself.
func (m StatisticRandom) Share() *big.Rat {
	kept := big.NewRat(int64(m.Odds), oddsUnit)
	share := kept
	if m.Odds > 1 && m.Odds < oddsUnit-1 {
		if n, d := simplest(uint64(m.Odds)-1, uint64(m.Odds)+1, oddsUnit); d < 1<<15 {
			share = big.NewRat(int64(n), int64(d))
		}
	}
	if m.Not {
		return new(big.Rat).Sub(big.NewRat(1, 1), share)
	}
	return share
}

// simplest finds the fraction with the smallest denominator in [lo/unit,
// hi/unit], 0 < lo < hi < unit, by walking down the continued fractions of
// both ends while they agree.
func simplest(lo, hi, unit uint64) (num, den uint64) {
	a, b, c, d := lo, unit, hi, unit
	// p/q are the convergents; the standard two-term recurrence.
	p0, q0, p1, q1 := uint64(0), uint64(1), uint64(1), uint64(0)
	for {
		f := a / b
		switch {
		case a%b == 0:
			return f*p1 + p0, f*q1 + q0
		case f < c/d:
			f++
			return f*p1 + p0, f*q1 + q0
		}
		p0, q0, p1, q1 = p1, q1, f*p1+p0, f*q1+q0
		a, b, c, d = d, c-f*d, b, a-f*b
	}
}

// Share is the long-run share of packets that match: 1/Every.
func (m StatisticNth) Share() *big.Rat {
	every := int64(max(m.Every, 1))
	share := big.NewRat(1, every)
	if m.Not {
		return new(big.Rat).Sub(big.NewRat(1, 1), share)
	}
	return share
}
