package conntrack

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portolan/kernel/conntrack"
	"portolan/kernel/conntrack/conntracktest"
	"portolan/service"
)

// crowd is a table of UDP flows to one Service, spread over its endpoints.
type crowd struct {
	table     *conntrack.Table
	before    *service.Service // with all endpoints
	after     *service.Service // without the last one
	lastFlows []conntrack.Flow // that lead to it
}

const crowdEndpoints = 10

// newCrowd fills the table of a new namespace with n flows, stale of them to the
// last endpoint.
func newCrowd(t testing.TB, n, stale int) crowd {
	t.Helper()
	c := crowd{table: conntracktest.InNamespace(t), before: dns(), after: dns()}
	var endpoints []service.Endpoint
	for i := range crowdEndpoints {
		endpoints = append(endpoints, service.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 2, byte(i)}), 53), Ready: true})
	}
	for _, p := range []struct {
		of   *service.Service
		list []service.Endpoint
	}{{c.before, endpoints}, {c.after, endpoints[:crowdEndpoints-1]}} {
		p.of.Ports = []service.Port{{Protocol: service.UDP, Port: 53, Endpoints: p.list}}
	}
	flows := make([]conntrack.Flow, 0, n)
	for i := range n {
		at := i % (crowdEndpoints - 1)
		if i < stale {
			at = crowdEndpoints - 1
		}
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 15), byte(i >> 7)}), uint16(1024+i&0x7f))
		flows = append(flows, conntrack.Flow{
			Proto: conntrack.UDP, Status: conntrack.SeenReply | conntrack.Assured,
			Orig:  conntrack.Tuple{Src: client, Dst: addrPort("10.96.0.10:53")},
			Reply: conntrack.Tuple{Src: endpoints[at].Addr, Dst: client},
		})
	}
	conntracktest.Create(t, flows...)
	c.lastFlows = flows[:stale]
	t.Cleanup(func() { c.empty(t) })
	return c
}

// empty removes all flows. All namespaces share one hash table, and the kernel takes
// its time to remove those of one that ended.
func (c crowd) empty(t testing.TB) {
	for f, err := range c.table.Flows(context.Background(), conntrack.Filter{}) {
		if err == nil {
			_, err = c.table.Delete([]conntrack.Flow{f})
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// pass runs one pass after the last endpoint went, or a full one.
func (c crowd) pass(t testing.TB, full bool) Pass {
	t.Helper()
	r := New(Options{Family: service.IPv4, Table: c.table, TCPReset: func() bool { return false },
		LocalAddrs: func() ([]netip.Addr, error) { return nil, nil }})
	first := snapshotOf(c.before)
	r.follow(first)
	p, _ := r.pass(context.Background(), []Written{{Snapshot: first.With(first.Node, []*service.Service{c.after}, nil)}}, full)
	if p.Err != nil || p.Removed != len(c.lastFlows) {
		t.Fatalf("%d of %d removed, %v", p.Removed, len(c.lastFlows), p.Err)
	}
	return p
}

// BenchmarkPass removes the 1,000 flows to an endpoint that went from among
// 100,000: after the change, in a full pass, and as the library does it.
func BenchmarkPass(b *testing.B) {
	const flows, stale = 100_000, 1000
	ways := map[string]func(testing.TB, crowd){
		"changed": func(t testing.TB, c crowd) { c.pass(t, false) },
		"full":    func(t testing.TB, c crowd) { c.pass(t, true) },
		"library": func(t testing.TB, c crowd) {
			filter := &netlink.ConntrackFilter{}
			last := c.before.Ports[0].Endpoints[crowdEndpoints-1].Addr.Addr()
			if err := filter.AddIP(netlink.ConntrackReplySrcIP, last.AsSlice()); err != nil {
				t.Fatal(err)
			}
			if n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, filter); err != nil || n != stale {
				t.Fatalf("%d removed, %v", n, err)
			}
		},
	}
	for _, name := range []string{"changed", "full", "library"} {
		b.Run(name, func(b *testing.B) {
			c := newCrowd(b, flows, stale)
			b.ReportAllocs()
			for first := true; b.Loop(); first = false {
				if !first {
					b.StopTimer()
					conntracktest.Create(b, c.lastFlows...)
					b.StartTimer()
				}
				ways[name](b, c)
			}
		})
	}
}

// BenchmarkLargeTable is a full pass over a million flows, or as many as the
// kernel of this machine takes.
func BenchmarkLargeTable(b *testing.B) {
	n := min(1_000_000, mostFlows(b)*9/10)
	b.Run(fmt.Sprintf("flows=%d", n), func(b *testing.B) {
		c := newCrowd(b, n, 0)
		b.ReportAllocs()
		for b.Loop() {
			c.pass(b, true)
		}
	})
}

func mostFlows(t testing.TB) int {
	text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_max")
	if err != nil {
		t.Skipf("no connection tracking: %v", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMemory: a full pass takes no more memory for 100,000 flows than for 10,000.
func TestMemory(t *testing.T) {
	const bound = 1 << 20 // all that is allocated, freed or not
	var taken [2]uint64
	for i, n := range []int{10_000, 100_000} {
		if mostFlows(t) < 2*n {
			t.Skipf("the kernel of this machine tracks no more than %d flows", mostFlows(t))
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := newCrowd(t, n, 1000)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			p := c.pass(t, true)
			runtime.ReadMemStats(&after)
			taken[i] = after.TotalAlloc - before.TotalAlloc
			t.Logf("%d flows read in %v, %d KiB allocated", p.Read, time.Since(start), taken[i]>>10)
		})
	}
	if taken[1] > taken[0]+bound {
		t.Errorf("%d KiB for 10,000 flows, %d KiB for 100,000", taken[0]>>10, taken[1]>>10)
	}
}
