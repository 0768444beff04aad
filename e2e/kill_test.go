package e2e

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var kills = flag.Int("kills", 20, "how often TestKilled kills the proxy of each mode")

// TestKilled: a proxy that is killed in the middle of a storm of changes leaves rules
// that lead nowhere wrong, and the next one makes them what is wanted.
func TestKilled(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, stormScenario())
		n := c.Node("node1")
		s := newStorm(t, c, rand.Uint64())
		still := c.trafficTo([]route{{"client", "198.51.100.249:80"}, {"pod:visitor", "10.96.3.90:80"}, {"node1", "[fd00:96::35a]:80"}})
		storming := s.call()
		proxy := c.relaunch(t, n.Name)
		for i := range *kills {
			moment := time.After(time.Duration(s.random.Int64N(int64(150 * time.Millisecond))))
			for alive := true; alive; {
				s.step()
				select {
				case <-moment:
					alive = false
				case <-time.After(time.Duration(s.random.Int64N(int64(20 * time.Millisecond)))):
				}
			}
			proxy.end(true)
			for range s.random.IntN(3) {
				s.step()
			}
			proxy = c.relaunch(t, n.Name)
			if err := s.settle(); err != nil {
				t.Fatalf("kill %d: %v", i, err)
			}
		}
		if err := storming(); err != nil {
			t.Error(err)
		}
		if err := still(); err != nil {
			t.Errorf("a Service that did not change: %v", err)
		}
		t.Logf("%d times killed, %d calls, none to a wrong place", *kills, c.tries)
		c.count("restart", *kills)
	})
}

// stormScenario is a cluster whose proxies write as often as they can.
func stormScenario() scenario {
	s := changeScenario()
	s.args = []string{"--iptables-min-sync-period", "5ms"}
	return s
}
