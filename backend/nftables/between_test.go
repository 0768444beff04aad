package nftables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// between is a Service that changes between two states, and what no packet to it may
// meet meanwhile.
type between struct {
	name      string
	endpoints []int // that it has in turn; below 0 there is no Service
	guarded   bool  // nobody here may use it
	wrong     string
}

// What a packet met is seen by what the caller is told, and by counters at the end.
const (
	stopped      = "refused"
	translated   = "translated"
	untranslated = "untranslated"
)

// TestBetweenTwoHooks: while a Service changes, a packet that is between two hooks
// meets what was or what will be. So that many are, each has many rules on its way
// there.
func TestBetweenTwoHooks(t *testing.T) {
	for _, c := range []between{
		{name: "a Service comes and goes", endpoints: []int{1, -1}, wrong: stopped},
		{name: "the first endpoint and the last", endpoints: []int{1, 0}, wrong: untranslated},
		{name: "endpoints one after the other", endpoints: []int{1, 2, 3, 2}, wrong: untranslated},
		{name: "a guarded Service comes and goes", endpoints: []int{1, -1}, guarded: true, wrong: translated},
		{name: "the first guarded endpoint and the last", endpoints: []int{1, 0}, guarded: true, wrong: translated},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t) })
	}
}

// calls is how many are made in each case at least, on a machine that is fast enough.
const (
	calls  = 10_000
	rounds = 25
)

// service is the Service that changes, with as many endpoints, all at that address.
func (c between) service(endpoints int, at netip.AddrPort) *service.Service {
	s := benchService(1, endpoints)
	s.Ports[0].Protocol = service.UDP
	for i := range s.Ports[0].Endpoints {
		s.Ports[0].Endpoints[i].Addr = at
	}
	switch {
	case c.guarded:
		s.ClusterIPs, s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{benchAddr(2)}, s.ClusterIPs, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	case slices.Contains(c.endpoints, 0):
		s.ClusterIPs, s.ExternalIPs = []netip.Addr{benchAddr(2)}, s.ClusterIPs
	}
	return s
}

func (c between) run(t *testing.T) {
	netnstest.Enter(t)
	endpoint := netip.MustParseAddrPort("10.255.0.1:8080")
	loopback(t, endpoint)
	if out, err := exec.Command("ip", "route", "add", "local", "10.254.0.0/16", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip route: %v: %s", err, out)
	}
	var config net.ListenConfig
	listener, err := config.ListenPacket(context.Background(), "udp", endpoint.String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	b := live(t, service.IPv4)
	sync := dataplane.NewSync(b)
	sync.Set(dataplane.Owner{}, b.Base(benchNode()))
	to := netip.AddrPortFrom(benchAddr(1), 80)
	set := func(n int) {
		s := c.service(max(0, n), endpoint)
		if n < 0 {
			sync.Remove(s.Name.String())
		} else {
			benchSet(t, sync, b, s)
		}
		apply(t, sync)
	}
	set(c.endpoints[0])
	set(c.endpoints[1])
	settle(t, b)
	c.stretch(t, b)
	var calling atomic.Uint32
	stop := startCallers(t, 3, func() error { return c.send(caller(calling.Add(1)), to) })
	for round := 0; round < rounds || round < 20*rounds && calling.Load() < calls; round++ {
		for _, n := range c.endpoints {
			set(n)
			settle(t, b)
		}
	}
	made, err := stop()
	if err != nil {
		t.Error(err)
	}
	text, err := exec.Command("nft", "list", "chain", "ip", TableName, "filter-output").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list: %v: %s", err, text)
	}
	found := counts.FindAllSubmatch(text, -1)
	if len(found) != 2 {
		t.Fatalf("%d counters in\n%s", len(found), text)
	}
	met := map[string]string{translated: string(found[0][1]), untranslated: string(found[1][1])}
	if n := met[c.wrong]; n != "" && n != "0" {
		t.Errorf("%s of %d calls were %s", n, made, c.wrong)
	}
	t.Logf("%d calls, %v", made, met)
}

// caller is an address and a port that no call had before: the kernel remembers what it
// did with the first datagram from there.
func caller(n uint32) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 254, byte(n >> 8), byte(n)}), uint16(10000+n>>16))
}

// send sends a datagram. One that a rule stops is refused at once.
func (c between) send(from, to netip.AddrPort) error {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	if denied := errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ECONNREFUSED); denied && c.wrong != stopped {
		return nil
	}
	return err
}

// stretch has packets of this node pass many rules before they come to dispatch, and
// many more before refusal, and counts there and behind.
func (c between) stretch(t *testing.T, b *Backend) {
	batch := nft.NewBatch(b.table)
	junk := slices.Repeat([]string{b.words.ip + " daddr 192.0.2.1/32 drop"}, 4000)
	here := b.words.ip + " daddr 10.96.0.0/12 counter"
	for chain, rules := range map[string][]string{
		"nat-output":    append(junk, "jump "+services),
		"filter-output": append(slices.Clone(junk), b.words.ip+" daddr 10.255.0.1/32 counter", "ct state new jump "+checkServices, here),
	} {
		batch.FlushChain(chain, 0)
		for _, text := range rules {
			r, err := b.words.rule(chain, text)
			if err != nil {
				t.Fatal(fmt.Errorf("%s: %w", strings.TrimSpace(text), err))
			}
			batch.AddRule(r, 0)
		}
	}
	if err := b.options.Conn.Commit(batch); err != nil {
		t.Fatal(err)
	}
}

// TestWhatWaitsIsAsWanted: what a packet on its way may need is there until later, and
// counts as gone; a Service that goes meanwhile takes it along at once.
func TestWhatWaitsIsAsWanted(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			has := func(what string, refusals, addresses int) {
				t.Helper()
				if r, a := elements(t, b, noEndpoints), elements(t, b, clusterIPs); r != refusals || a != addresses {
					t.Errorf("%s: %d refusals and %d addresses, not %d and %d", what, r, a, refusals, addresses)
				}
			}
			become := func(endpoints int) {
				t.Helper()
				program(t, b, sync, nodeOf(f), f.Web(1, endpoints))
				apply(t, sync)
				nothingToDo(t, b, nodeOf(f), f.Web(1, endpoints))
				b.fresh = false // nobody asked but this test
			}
			become(0)
			has("without endpoints", 1, 1)
			become(1)
			has("with one", 1, 1)
			become(0)
			settle(t, b)
			has("without endpoints again", 1, 1)
			become(1)
			sync.Remove(f.Web(1, 0).Name.String())
			apply(t, sync)
			has("gone", 0, 0)
			become(1)
			has("there again", 0, 0)
			settle(t, b)
			has("later", 0, 1)
		})
	}
}

// TestWhatWaitsWhileOthersDelete: what was to come later, and has come with the repair of
// what others deleted, goes with its Service.
func TestWhatWaitsWhileOthersDelete(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			program(t, b, sync, nodeOf(f), f.Web(1, 1))
			apply(t, sync)
			program(t, b, sync, nodeOf(f), f.Web(2, 1))
			apply(t, sync) // its address is still to come
			load(t, "flush ruleset")
			if _, err := sync.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := elements(t, b, clusterIPs); n != 2 {
				t.Errorf("%d addresses after the repair, not 2", n)
			}
			sync.Remove(f.Web(2, 1).Name.String())
			apply(t, sync)
			settle(t, b)
			if n := elements(t, b, clusterIPs); n != 1 {
				t.Errorf("%d addresses of one Service", n)
			}
			nothingToDo(t, b, nodeOf(f), f.Web(1, 1))
		})
	}
}

// TestWhatWaitsWhileOthersDeleteAll: an address that was to come later does not come when
// its Service went together with the table.
func TestWhatWaitsWhileOthersDeleteAll(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			for i := range 2 {
				program(t, b, sync, nodeOf(f), f.Web(i+1, 1))
				apply(t, sync)
			}
			load(t, "flush ruleset")
			sync.Remove(f.Web(2, 1).Name.String())
			if _, err := sync.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			settle(t, b)
			nothingToDo(t, b, nodeOf(f), f.Web(1, 1))
		})
	}
}

// TestWhatWaitsGoesByItself: nobody has to ask for it.
func TestWhatWaitsGoesByItself(t *testing.T) {
	netnstest.Enter(t)
	f := families[0]
	b := live(t, f.Family)
	b.removeAfter = time.Millisecond
	sync := dataplane.NewSync(b)
	for _, endpoints := range []int{0, 1} {
		program(t, b, sync, nodeOf(f), f.Web(1, endpoints))
		apply(t, sync)
	}
	deadline := time.Now().Add(20 * time.Second)
	refusals := func() int {
		b.mu.Lock() // of the connection to the kernel
		defer b.mu.Unlock()
		return elements(t, b, noEndpoints)
	}
	for refusals() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("still refused")
		}
		runtime.Gosched()
	}
}
