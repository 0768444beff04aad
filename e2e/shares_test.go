package e2e

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"

	"portolan/lab"
)

// shareCase is an address, and how often each pod is to be chosen beside the others.
type shareCase struct {
	from  string
	proto string
	to    netip.AddrPort
	parts map[string]int
}

const shareConnections = 3000

// TestShares: of 3,000 connections each endpoint gets its part within 3 standard
// deviations: a third, or what its weight says. A fair choice fails that by chance in
// one of 150 rounds, so it has two; one that is off by more than a few percent fails
// both.
func TestShares(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		equal := newCluster(t, b, baseScenario(t))
		weighted := newCluster(t, b, scenarioNamed(t, "options"))
		for _, s := range []struct {
			c *cluster
			shareCase
		}{
			{equal, shareCase{"pod:visitor-1", "tcp", netip.MustParseAddrPort("10.96.0.10:80"), map[string]int{"web-1": 1, "web-2": 1, "web-3": 1}}},
			{weighted, shareCase{"pod:visitor", "tcp", netip.MustParseAddrPort("10.96.0.10:80"), map[string]int{"web-1": 3, "web-2": 2, "web-3": 2}}},
			{weighted, shareCase{"client", "tcp", netip.MustParseAddrPort("198.51.100.10:80"), map[string]int{"web-1": 3, "web-2": 2}}},
		} {
			err := s.c.shares(s.shareCase)
			if err != nil {
				t.Logf("first round: %v", err)
				err = s.c.shares(s.shareCase)
			}
			if err != nil {
				t.Errorf("second round: %v: %v", s.to, err)
			}
		}
		equal.count("shares", 1)
		weighted.count("shares", 2)
	})
}

func scenarioNamed(t *testing.T, name string) scenario {
	t.Helper()
	list := readScenarios(t)
	i := slices.IndexFunc(list, func(s scenario) bool { return s.name == name })
	if i < 0 {
		t.Fatalf("no scenario is called %s", name)
	}
	return list[i]
}

func (c *cluster) shares(s shareCase) error {
	call := lab.Call{Proto: s.proto, To: s.to, Timeout: patience}
	from := c.host(s.from)
	answered := map[string]int{}
	for range shareConnections {
		o := c.try(from, call)
		if o.Verdict != lab.Answered {
			return fmt.Errorf("%v after answers of %v", o, answered)
		}
		answered[o.Pod]++
	}
	all := 0
	for _, part := range s.parts {
		all += part
	}
	for pod, part := range s.parts {
		share := float64(part) / float64(all)
		bound := 3 * math.Sqrt(shareConnections*share*(1-share))
		if off := math.Abs(float64(answered[pod]) - shareConnections*share); off > bound {
			return fmt.Errorf("%s is %.0f off its %.3f, more than %.0f: %v", pod, off, share, bound, answered)
		}
	}
	if len(answered) > len(s.parts) {
		return fmt.Errorf("others answer too: %v", answered)
	}
	c.t.Logf("shares of %d connections to %v: %v", shareConnections, s.to, answered)
	return nil
}

// TestTurns: with round robin the endpoints take turns, each as often as its weight,
// with no exception, whoever asks.
func TestTurns(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, scenarioNamed(t, "options"))
		call := lab.Call{Proto: "udp", To: netip.MustParseAddrPort("10.96.0.11:53"), Timeout: patience}
		want := map[string]int{"web-1": 1, "web-2": 1, "web-3": 2}
		const round, rounds = 4, 25
		var answers []string
		for i := range round * rounds {
			from := []string{"pod:visitor", "client", "node1"}[i%3]
			// From a port that a caller had before it would go on with that flow, and
			// take no turn. The kernel, which chooses among 28,232, does so in one of
			// twenty runs.
			call.Port = uint16(11000 + i)
			o := c.try(c.host(from), call)
			if o.Verdict != lab.Answered {
				t.Fatalf("%s: %v", from, o)
			}
			answers = append(answers, o.Pod)
		}
		for i := range round * (rounds - 1) {
			counted := map[string]int{}
			for _, pod := range answers[i : i+round] {
				counted[pod]++
			}
			if !maps.Equal(counted, want) {
				t.Fatalf("the round from answer %d on has %v, want %v: %v", i, counted, want, answers[:i+round])
			}
		}
		c.count("shares", 1)
	})
}
