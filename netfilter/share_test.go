package netfilter

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// Every 1/n that a proxy writes with ten digits must come back as 1/n.
func TestShareOfWrittenFractions(t *testing.T) {
	for n := int64(1); n <= 20000; n++ {
		p := math.Round(1e10/float64(n)) / 1e10
		m := StatisticRandom{Odds: uint32(math.Round(p * oddsUnit))}
		if got := m.Share(); got.Cmp(big.NewRat(1, n)) != 0 {
			t.Fatalf("1/%d came back as %s", n, got)
		}
	}
}

func TestShareOfSmallFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.Int64Range(1, 20000).Draw(t, "den")
		n := rapid.Int64Range(0, d).Draw(t, "num")
		want := big.NewRat(n, d)
		f, _ := want.Float64()
		m := StatisticRandom{Odds: uint32(math.Round(f * oddsUnit))}
		if got := m.Share(); got.Cmp(want) != 0 {
			t.Fatalf("%s came back as %s", want, got)
		}
		m.Not = true
		if got := m.Share(); got.Cmp(new(big.Rat).Sub(big.NewRat(1, 1), want)) != 0 {
			t.Fatalf("the negation of %s came back as %s", want, got)
		}
	})
}

// A number that is no simple fraction keeps its exact value.
func TestShareOfOddNumbers(t *testing.T) {
	m := StatisticRandom{Odds: 1234567891}
	if got := m.Share(); got.Cmp(big.NewRat(1234567891, oddsUnit)) != 0 && got.Denom().Int64() >= 1<<15 {
		t.Fatalf("got %s", got)
	}
}
