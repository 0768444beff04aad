package e2e

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan/lab"
)

// TestSlowStart: an endpoint that comes while its Service is known begins with a
// tenth of a full share and ends with all of it.
func TestSlowStart(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		slow := strings.Replace(extraService, "metadata: {name: extra", `metadata: {annotations: {portolan.io/slow-start: "12s"}, name: extra`, 1)
		const first, fresh = "10.244.1.11", "10.244.1.12" // web-1, web-2
		c.apply(map[string][]byte{"extra.yaml": extraManifests(slow, []string{first})})
		if err := c.settles("10.96.0.12:80", "answered web-1"); err != nil {
			t.Fatal(err)
		}
		c.apply(map[string][]byte{"extra.yaml": extraManifests(slow, []string{first, fresh})})

		call := lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.0.12:80"), Timeout: patience}
		from := c.host("pod:visitor-1")
		const window = 300
		share := func() float64 {
			n := 0
			for range window {
				o := c.try(from, call)
				if o.Verdict != lab.Answered {
					t.Fatalf("%v", o)
				}
				if o.Pod == "web-2" {
					n++
				}
			}
			return float64(n) / window
		}
		// It is there once it has answered.
		if _, err := c.leaves(from, call.To, "web-1"); err != nil {
			t.Fatal(err)
		}
		// The parts to expect are 1/11, 2/12 and so on, one more each 1.2 s: a third
		// after 5 of 10 steps. With its full share from the start it would be a half,
		// which 300 calls tell apart from 2/5 in all but one of 2,000 runs.
		start := time.Now()
		before := share()
		took := time.Since(start)
		switch {
		case took > 6*time.Second:
			t.Logf("%d calls took %v: too slow to see the beginning", window, took)
		case before > 0.4:
			t.Errorf("a fresh endpoint has %.3f of the connections of %v", before, took)
		}
		after := share()
		for ; after < 0.42; after = share() {
			if time.Since(start) > time.Minute {
				t.Fatalf("after %v it has %.3f", time.Since(start), after)
			}
		}
		t.Logf("at first %.3f, after %v %.3f", before, time.Since(start).Round(100*time.Millisecond), after)
		c.count("shares", 1)
	})
}
