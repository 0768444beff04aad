package e2e

import (
	"fmt"
	"math"
	"net/netip"
	"testing"

	"portolan/lab"
)

// TestShares: 3,000 connections over 3 endpoints, each gets a third within 3
// standard deviations. A fair choice fails that by chance in one of 150 rounds,
// so it has two; an unfair one of more than a few percent fails both.
func TestShares(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		err := c.shares()
		if err != nil {
			t.Logf("first round: %v", err)
			err = c.shares()
		}
		if err != nil {
			t.Errorf("second round: %v", err)
		}
		c.count("shares", 1)
	})
}

func (c *cluster) shares() error {
	const connections, endpoints = 3000, 3
	call := lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.0.10:80"), Timeout: patience}
	from := c.host("pod:visitor-1")
	answered := map[string]int{}
	for range connections {
		o := c.try(from, call)
		if o.Verdict != lab.Answered {
			return fmt.Errorf("%v after answers of %v", o, answered)
		}
		answered[o.Pod]++
	}
	const share = 1.0 / endpoints
	bound := 3 * math.Sqrt(connections*share*(1-share))
	for _, pod := range []string{"web-1", "web-2", "web-3"} {
		if off := math.Abs(float64(answered[pod]) - connections*share); off > bound {
			return fmt.Errorf("%s is %.0f off a third, more than %.0f: %v", pod, off, bound, answered)
		}
	}
	c.t.Logf("shares of %d connections: %v", connections, answered)
	return nil
}
