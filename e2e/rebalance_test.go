package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portolan/lab"
)

// topPort is what the test reads of the JSON of "portolan top".
type topPort struct {
	Live, Stale, Unreplied int
	Skew, NewPerSecond     float64
	Endpoints              []struct {
		Address  string
		Live     int
		Expected float64
	}
}

// TestTopAndRebalance: connections that were there before a second endpoint stay with
// the first one, which top shows; rebalance halves the skew, for what it said it
// would cost. With 60 of them chance has little to say.
func TestTopAndRebalance(t *testing.T) {
	const connections = 60
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, scenario{name: "rebalance", topology: lab.Numbered(1, 3, 8080), manifests: tcpService(tcpVIP, "a", ""),
			args: often("10ms")})
		crowd := c.longConnections(t, connections)
		c.apply(map[string][]byte{"services.yaml": tcpService(tcpVIP, "ab", "")})
		if b.mode != "ipvs" { // where both take turns, and nobody answers three times in a row
			if err := c.settles(tcpVIP+":80", "answered pod-1-2"); err != nil {
				t.Fatal(err)
			}
		}
		before := c.top(t)
		if before.Live < connections || before.Skew < 0.4 || before.Endpoints[0].Live < connections || before.Stale+before.Unreplied > 0 {
			t.Fatalf("top: %+v", before)
		}
		if b.mode == "ipvs" {
			crowd.stop()
			c.count("rebalance", 1)
			return // IPVS remembers connections by itself: none can be shed
		}

		const announces = `cost: at most (\d+) connections are reset .* probably (\d+)`
		dry := c.portolan(t, "rebalance", "--max-fraction", "1", "--dry-run", "default/tcp")
		most := numberOf(t, dry, announces)
		if crowd.resets.Load() != 0 {
			t.Errorf("a dry run reset %d connections", crowd.resets.Load())
		}
		said := c.portolan(t, "rebalance", "--max-fraction", "1", "--rate", "30/s", "default/tcp")
		told := numberOf(t, said, `done: \d+ shed, (\d+) reset`)
		silent := numberOf(t, said, `done: .* (\d+) not heard of`)
		after := c.top(t)
		crowd.stop()
		resets := int(crowd.resets.Load())
		t.Logf("skew %.2f, then %.2f; %d resets, %d told, at most %d announced\n%s", before.Skew, after.Skew, resets, told, most, said)
		if after.Skew > before.Skew/2 || after.Live+silent < connections {
			t.Errorf("top afterwards: %+v", after)
		}
		if resets > most || resets < told || resets > told+silent || resets == 0 {
			t.Errorf("%d connections were reset, %d were told, at most %d announced", resets, told, most)
		}
		c.tries += connections
		c.count("conntrack", connections)
	})
}

// longConnections are clients that talk over one connection each for a long time, and
// connect again when it is reset.
type longConnections struct {
	resets atomic.Int32
	stop   func()
}

func (c *cluster) longConnections(t *testing.T, n int) *longConnections {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &longConnections{}
	var clients, greeted sync.WaitGroup
	greeted.Add(n)
	for i := range n {
		from := c.host([]string{"client", "pod:pod-1-3"}[i%2]) // what comes from outside is masqueraded
		clients.Go(func() {
			err := talk(ctx, from, greeted.Done, func() { out.resets.Add(1) })
			if err != nil {
				t.Error(err)
			}
		})
	}
	greeted.Wait()
	out.stop = sync.OnceFunc(func() { cancel(); clients.Wait() })
	t.Cleanup(out.stop)
	return out
}

// talk says something every now and then until ctx ends.
func talk(ctx context.Context, from *lab.Host, greeted, reset func()) error {
	greet := sync.OnceFunc(greeted)
	defer greet()
	pace := time.NewTicker(200 * time.Millisecond)
	defer pace.Stop()
	for {
		conn, err := from.Open(ctx, lab.Call{Proto: "tcp", To: netip.MustParseAddrPort(tcpVIP + ":80"), Timeout: patience})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Close()
		for conn.Ask(tolerated).Verdict == lab.Answered {
			greet()
			select {
			case <-ctx.Done():
				return nil
			case <-pace.C:
			}
		}
		reset()
	}
}

// portolan runs a command beside the proxy of node1, with the same Services.
func (c *cluster) portolan(t *testing.T, args ...string) string {
	t.Helper()
	args = append(args, "--manifests", c.dir, "--hostname-override", "node1", "--cluster-cidr", clusterCIDR())
	out, err := c.backend.(portolan).command(t.Context(), c.Node("node1"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("portolan %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (c *cluster) top(t *testing.T) topPort {
	t.Helper()
	out := c.portolan(t, "top", "--once", "--interval", "500ms", "-o", "json", "default/tcp")
	var v struct{ Ports []topPort }
	if err := json.Unmarshal([]byte(out), &v); err != nil || len(v.Ports) != 1 || len(v.Ports[0].Endpoints) != 2 {
		t.Fatalf("top: %v\n%s", err, out)
	}
	return v.Ports[0]
}

func numberOf(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no %q in\n%s", pattern, text)
	}
	n, _ := strconv.Atoi(m[1]) // digits
	return n
}
