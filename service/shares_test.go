package service

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// weighted reads "3 1 0 2@5": weights, and tenths of warmth.
func weighted(text string) (out []Endpoint) {
	for i, word := range strings.Fields(text) {
		e := Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80), Ready: true, Serving: true}
		weight, warmth, _ := strings.Cut(word, "@")
		fmt.Sscan(warmth, &e.Warmth)
		fmt.Sscan(weight, &e.Weight)
		if weight == "0" {
			e.Weight = Weightless
		}
		out = append(out, e)
	}
	return out
}

// Weights become the smallest whole numbers with the same ratio.
func TestRatios(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "[]",
		"1":                 "[1]",
		"1 1 1":             "[1 1 1]",
		"7 7":               "[1 1]",
		"3 1":               "[3 1]",
		"30 10":             "[3 1]",
		"4 6 2":             "[2 3 1]",
		"0 0":               "[1 1]",
		"1@1 1":             "[1 10]",
		"1@5 1 1":           "[1 2 2]",
		"2@5 1":             "[1 1]",
		"1@3 1@3":           "[1 1]",
		"1000 1":            "[1000 1]",
		"1000 999 1":        "[512 511 1]",
		"1000@9 1000 1@1 1": "[484 538 1 1]",
	} {
		if got := fmt.Sprint(Ratios(weighted(text))); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// Ratios are bounded, at least 1, in the order of what was asked for, and off by
// less than one part of their sum, but for those that would get nothing.
func TestRatiosAreNear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := make([]Endpoint, rapid.IntRange(1, 600).Draw(t, "n"))
		asked, sum := make([]int, len(list)), 0
		for i := range list {
			list[i].Weight = Weight(rapid.IntRange(1, int(MaxWeight)).Draw(t, "weight"))
			list[i].Warmth = Warmth(rapid.IntRange(0, WarmthSteps-1).Draw(t, "warmth"))
			asked[i] = list[i].Weight.Value() * list[i].Warmth.tenths()
			sum += asked[i]
		}
		got := Ratios(list)
		parts, raised := 0, 0
		for i := range got {
			parts += got[i]
			if got[i] < 1 {
				t.Fatalf("%d of %v", i, got)
			}
			if asked[i]*max(LeastSlots, SlotsPerEndpoint*len(list)) < sum {
				raised++
			}
		}
		if most := max(LeastSlots, SlotsPerEndpoint*len(list)) + raised; parts > most {
			t.Fatalf("%d parts, at most %d", parts, most)
		}
		bound := big.NewRat(int64(1+raised), int64(parts))
		for i := range got {
			off := new(big.Rat).Sub(big.NewRat(int64(got[i]), int64(parts)), big.NewRat(int64(asked[i]), int64(sum)))
			if off.Abs(off).Cmp(bound) > 0 {
				t.Fatalf("%d of %d gets %d of %d, asked for %d of %d", i, len(list), got[i], parts, asked[i], sum)
			}
			for j := range got {
				if asked[i] > asked[j] && got[i] < got[j] {
					t.Fatalf("%d asked for more than %d and gets less", i, j)
				}
			}
		}
	})
}

func slotNames(list []Endpoint) string {
	var b strings.Builder
	for _, e := range list {
		b.WriteByte('a' + e.Addr.Addr().As4()[3])
	}
	return b.String()
}

// Endpoints stand as often as their weight says, spread evenly.
func TestSlots(t *testing.T) {
	for text, want := range map[string]string{
		"1 1 1":   "abc",
		"3 1":     "aaba", // the single slot stands in the middle
		"2 1":     "aba",
		"5 1 1":   "aaabcaa",
		"1 1@5 1": "acbac",
	} {
		got := slotNames(Slots(weighted(text)))
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	same := weighted("2 2")
	if got := Slots(same); &got[0] != &same[0] {
		t.Error("a list of equals is copied")
	}
}

// An endpoint of weight 0 is used when no other is there.
func TestWeightless(t *testing.T) {
	svc := &Service{ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []Port{{Protocol: TCP, Port: 80}}}
	for text, want := range map[string]string{"1 0 2": "ac", "0 0": "ab", "0 1": "b"} {
		svc.Ports[0].Endpoints = weighted(text)
		got := Choose(Node{}, svc, svc.Ports[0], IPv4)
		if slotNames(got.Cluster) != want || slotNames(got.Reachable) != want {
			t.Errorf("%q: %s, reachable %s, want %s", text, slotNames(got.Cluster), slotNames(got.Reachable), want)
		}
		if strings.Contains(got.ClusterReason, "weight") != (slices.ContainsFunc(svc.Ports[0].Endpoints, func(e Endpoint) bool { return e.Weight == Weightless })) {
			t.Errorf("%q: reason %q", text, got.ClusterReason)
		}
	}
}
