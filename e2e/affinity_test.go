package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"portolan/lab"
)

// affinityTimeout is timeoutSeconds of the Service "sticky" in the base scenario.
const affinityTimeout = 2 * time.Second

var stickyIP = netip.MustParseAddrPort("10.96.0.11:80")

// TestAffinity: an endpoint is kept while calls come more often than the time-out,
// also for longer than it: each call starts it anew. After a silence longer than
// the time-out the choice is free again.
func TestAffinity(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		var clients []netip.Addr
		for _, a := range c.Client.Addrs {
			if a.Is4() {
				clients = append(clients, a)
			}
		}
		if err := c.sticks(clients); err != nil {
			t.Error(err)
		}
		if err := c.expires(clients); err != nil {
			t.Error(err)
		}
		c.count("affinity", len(clients))
	})
}

// sticks calls from every address again and again for more than two time-outs.
// Forgotten affinity is a new choice of three, so with five callers it cannot hide.
// A pause that comes near the time-out, on a machine that has no time for us,
// proves nothing: then it begins again.
func (c *cluster) sticks(clients []netip.Addr) error {
	pace := time.NewTicker(affinityTimeout / 10)
	defer pace.Stop()
	pods := map[netip.Addr]string{}
	began := time.Now()
	last := began
	for time.Since(began) < affinityTimeout*5/2 {
		for _, from := range clients {
			o := c.try(c.Client, lab.Call{Proto: "tcp", From: from, To: stickyIP, Timeout: patience})
			if o.Verdict != lab.Answered {
				return fmt.Errorf("affinity: from %v: %v", from, o)
			}
			if time.Since(last) > affinityTimeout/2 {
				began, pods = time.Now(), map[netip.Addr]string{}
			}
			if before := pods[from]; before != "" && before != o.Pod {
				return fmt.Errorf("affinity: %v went from %s to %s, %v after it began", from, before, o.Pod, time.Since(began))
			}
			pods[from] = o.Pod
		}
		last = time.Now()
		<-pace.C
	}
	return nil
}

// expires lets everybody be silent for longer than the time-out until somebody is
// answered by another endpoint. All five keeping theirs by chance is one in 243 a
// round.
func (c *cluster) expires(clients []netip.Addr) error {
	pods := map[netip.Addr]string{}
	for range 5 {
		for _, from := range clients {
			o := c.try(c.Client, lab.Call{Proto: "tcp", From: from, To: stickyIP, Timeout: patience})
			if o.Verdict != lab.Answered {
				return fmt.Errorf("affinity: from %v: %v", from, o)
			}
			if before := pods[from]; before != "" && before != o.Pod {
				return nil
			}
			pods[from] = o.Pod
		}
		// Nothing but time makes affinity expire, and asking would renew it.
		<-time.After(affinityTimeout * 5 / 4)
	}
	return fmt.Errorf("affinity: five silences of %v and everybody still has %v", affinityTimeout*5/4, pods)
}
