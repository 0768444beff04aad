package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan/lab"
)

var soak = flag.Duration("soak", time.Minute, "how long TestSoak lasts in each mode")

// TestSoak: changes, flushes by others and restarts at random, with clients that call
// all the time: at the end the rules are what is wanted, and the proxy that was there
// from the beginning holds as much memory and as many files as after a third of the
// time.
func TestSoak(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, stormScenario())
		s := newStorm(t, c, rand.Uint64())
		long, short := c.relaunch(t, "node1"), c.relaunch(t, "node2")
		storming := s.call()
		harms := c.crudeHarms()
		watch := newGauge(t, long)
		done := map[string]int{}
		for until := time.Now().Add(*soak); time.Now().Before(until); {
			switch s.random.IntN(40) {
			case 0, 1:
				done["flushes"]++
				h := harms[s.random.IntN(len(harms))]
				if err := h.do(c, c.Node([]string{"node1", "node2"}[s.random.IntN(2)])); err != nil {
					t.Fatalf("%s: %v", h.what, err)
				}
			case 2:
				done["restarts"]++
				short.end(s.random.IntN(2) == 0)
				short = c.relaunch(t, "node2")
			case 3:
				done["looks"]++
				if err := s.settle(); err != nil {
					t.Fatal(err)
				}
			default:
				done["changes"]++
				s.step()
			}
			watch.read(t)
			time.Sleep(time.Duration(s.random.Int64N(int64(60 * time.Millisecond)))) // what is random is the pace
		}
		for _, n := range c.Nodes() {
			if err := c.inForceOn(n); err != nil {
				t.Error(err)
			}
		}
		if err := storming(); err != nil {
			t.Error(err)
		}
		t.Logf("%v, %d calls, %v", done, c.tries, watch)
		if err := watch.flat(); err != nil {
			t.Error(err)
		}
		c.count("restart", len(done))
	})
}

// running is a proxy that the test ends itself.
type running struct {
	*lab.Cmd
	over bool
}

// relaunch starts the proxy of a node again.
func (c *cluster) relaunch(t *testing.T, node string) *running {
	t.Helper()
	if err := c.stops[node](); err != nil {
		t.Fatal(err)
	}
	cmd, err := c.backend.(portolan).launch(t.Context(), c.Node(node), c.dir, c.scenario.args, c.logs[node])
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Cmd: cmd}
	c.stops[node] = func() error { r.end(false); return nil }
	return r
}

// end ends it, gently or not, once.
func (r *running) end(kill bool) {
	if r.over {
		return
	}
	r.over = true
	if kill {
		r.Process.Kill()
	} else {
		r.Process.Signal(syscall.SIGTERM)
	}
	r.Wait()
}

// crudeHarms are those that fit any Services.
func (c *cluster) crudeHarms() []harm {
	list := []harm{{what: "conntrack -F", command: []string{"conntrack", "-F"}}}
	if c.backend.(portolan).mode == "nftables" {
		return append(list,
			harm{what: "the table", command: []string{"nft", "delete", "table", "ip", "portolan"}},
			harm{what: "one chain", command: []string{"nft", "flush", "chain", "ip6", "portolan", "services"}},
			harm{what: "nft flush ruleset", command: []string{"nft", "flush", "ruleset"}})
	}
	return append(list,
		harm{what: "iptables -F -t nat", command: []string{"iptables", "-F", "-t", "nat"}},
		harm{what: "ip6tables -F", command: []string{"ip6tables", "-F"}},
		harm{what: "one chain", command: []string{"ip6tables", "-t", "nat", "-F", "KUBE-SERVICES"}},
		harm{what: "an empty table restored", command: []string{"iptables-restore"}, stdin: "*nat\nCOMMIT\n"})
}

// gauge follows what a process holds.
type gauge struct {
	pid           int
	last          time.Time
	memory, files []int // KiB resident, open files
}

func newGauge(t *testing.T, r *running) *gauge {
	g := &gauge{pid: r.Process.Pid}
	g.read(t)
	return g
}

// read takes a reading, at most every tenth of a second.
func (g *gauge) read(t *testing.T) {
	t.Helper()
	if time.Since(g.last) < 100*time.Millisecond {
		return
	}
	g.last = time.Now()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.pid))
	if err != nil {
		t.Fatalf("the proxy that was to last: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	resident, err := strconv.Atoi(strings.Fields(rest + " ?")[0])
	if err != nil {
		t.Fatalf("its memory: %v", err)
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.pid))
	if err != nil {
		t.Fatalf("its files: %v", err)
	}
	g.memory, g.files = append(g.memory, resident), append(g.files, len(files))
}

// thirds are the medians of the second and of the last third.
func thirds(list []int) (second, last int) {
	median := func(list []int) int {
		list = slices.Sorted(slices.Values(list))
		return list[len(list)/2]
	}
	n := len(list)
	return median(list[n/3 : 2*n/3+1]), median(list[2*n/3:])
}

func (g *gauge) String() string {
	m, memory := thirds(g.memory)
	f, files := thirds(g.files)
	return fmt.Sprintf("memory %.1f MiB, then %.1f MiB; files %d, then %d", float64(m)/1024, float64(memory)/1024, f, files)
}

// flat tells what grew. A little is the garbage collector's and the pipes of programs
// that are running.
func (g *gauge) flat() error {
	if m, memory := thirds(g.memory); memory > m+m/5+4*1024 {
		return fmt.Errorf("memory grows: %v", g)
	}
	if f, files := thirds(g.files); files > f+5 {
		return fmt.Errorf("files stay open: %v", g)
	}
	return nil
}
