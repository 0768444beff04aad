package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestRestartGivesWeightsBack: a real server that was on its way out when the proxy
// ended, and whose pod is ready, has weight 1 after the first write, and the virtual
// server is never without one of weight.
func TestRestartGivesWeightsBack(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	program(t, b, sync, self(f), f.Web(1, 2))
	apply(t, sync)
	id := ipvs.ID{Protocol: ipvs.TCP, Addr: netip.AddrPortFrom(at(f.Cluster, 1), 80)}
	for _, e := range f.Endpoints(2, 8080) {
		if err := b.options.Kernel.Servers.SetReal(id, ipvs.Real{Addr: e.Addr}); err != nil {
			t.Fatal(err)
		}
	}
	again := live(t, f.Family)
	sync = dataplane.NewSync(again)
	program(t, again, sync, self(f), f.Web(1, 1)) // of the other nobody wants anything
	apply(t, sync)
	if got, want := reals(t, again, ipvs.TCP, at(f.Cluster, 1), 80), []string{"10.244.1.1:8080 1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	nothingToDo(t, again, self(f), f.Web(1, 1))
}

// TestOneEndpoint: an endpoint that comes is one real server added, and one that goes
// is one that gets weight 0 and is removed; nothing else is touched.
func TestOneEndpoint(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	program(t, b, sync, self(f), mix(f)...)
	k := b.options.Kernel
	web := func(endpoints int) *service.Service {
		s := f.Web(100, endpoints)
		s.Ports[0].Endpoints = f.Endpoints(endpoints, 9090)
		return s
	}
	count := func(endpoints int) (servers, sets int) {
		servers, sets = k.Servers.Writes, k.Sets.Writes
		program(t, b, sync, self(f), web(endpoints))
		apply(t, sync)
		return k.Servers.Writes - servers, k.Sets.Writes - sets
	}
	count(2)
	// The fourth endpoint is on another node; the third is here and has an entry in
	// KUBE-LOOP-BACK.
	for _, change := range []struct{ endpoints, servers, sets int }{{3, 1, 1}, {4, 1, 0}, {3, 2, 0}, {2, 2, 1}} {
		if servers, sets := count(change.endpoints); servers != change.servers || sets != change.sets {
			t.Errorf("to %d endpoints: %d changes of servers and %d of sets, want %d and %d",
				change.endpoints, servers, sets, change.servers, change.sets)
		}
	}
	if got, want := reals(t, b, ipvs.TCP, at(f.Cluster, 100), 80), []string{"10.244.1.1:9090 1", "10.244.2.2:9090 1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// crash is a context that ends when it was asked a number of times.
type crash struct {
	context.Context
	left *int
}

func (c crash) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// crashing is a Backend whose writes end in the middle.
type crashing struct {
	*Backend
	left *int
}

func (c crashing) Apply(ctx context.Context, p dataplane.Plan) error {
	return c.Backend.Apply(crash{ctx, c.left}, p)
}

// TestCrash: wherever a write ends in the middle, the next start finds what is there
// to be ours and makes the rest of it, and when all Services are gone nothing is left.
func TestCrash(t *testing.T) {
	f := families[0]
	list := mix(f)
	for step, done := 0, false; !done; step += 2 {
		done = true // unless a write ends early; also when the kernel has no IPVS
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			inNamespace(t)
			b := live(t, f.Family)
			left := step
			sync := dataplane.NewSync(crashing{b, &left})
			program(t, b, sync, self(f), list...)
			_, err := sync.Apply(t.Context())
			done = err == nil
			again := live(t, f.Family)
			sync = dataplane.NewSync(again)
			program(t, again, sync, self(f), list[:len(list)/2]...)
			apply(t, sync)
			nothingToDo(t, again, self(f), list[:len(list)/2]...)
			sync = dataplane.NewSync(again)
			program(t, again, sync, self(f))
			apply(t, sync)
			servers, err := again.options.Kernel.Servers.Servers()
			if err != nil || len(servers) > 0 {
				t.Errorf("left: %v, %v", servers, err)
			}
		})
	}
}

// TestOthersServers: virtual servers of somebody else stay as they are, also when
// they are on an address of this node, and in ranges that are excluded.
func TestOthersServers(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	b.options.Exclude = []netip.Prefix{netip.MustParsePrefix("10.96.0.200/29")}
	sync := dataplane.NewSync(b)
	program(t, b, sync, self(f), mix(f)...)
	apply(t, sync)
	k := b.options.Kernel.Servers
	others := []ipvs.Server{
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.11:443")}, Scheduler: "wlc"},
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.99:30080")}, Scheduler: "wlc"},
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("10.96.0.201:80")}, Scheduler: "wlc"},
	}
	for _, s := range others {
		if err := errors.Join(k.AddServer(s), k.AddReal(s.ID, ipvs.Real{Addr: netip.MustParseAddrPort("192.0.2.100:443"), Weight: 7})); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range mix(f) {
		sync.Remove(s.Name.String())
	}
	if _, err := sync.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	left, err := k.Servers()
	if err != nil {
		t.Fatal(err)
	}
	// The second has the port of a NodePort, which tells it to be ours.
	if len(left) != 2 || !slices.Contains(left, others[0]) || !slices.Contains(left, others[2]) {
		t.Errorf("left: %+v", left)
	}
}

// TestUnroutable: an endpoint that no route leads to is left out, and told once; the
// others serve.
func TestUnroutable(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	var told []string
	b.options.Trouble = func(err error) { told = append(told, err.Error()) }
	sync := dataplane.NewSync(b)
	bad := f.Web(1, 3)
	bad.Ports[0].Endpoints[0].Addr = netip.MustParseAddrPort("255.255.255.255:80")
	program(t, b, sync, self(f), bad, f.Web(2, 2))
	for range 2 {
		if r, err := sync.Reconcile(context.Background()); err != nil || len(r.Rejected) > 0 {
			t.Fatalf("rejected: %+v, %v", r.Rejected, err)
		}
	}
	for _, n := range []int{1, 2} {
		if got := reals(t, b, ipvs.TCP, at(f.Cluster, n), 80); len(got) != 2 {
			t.Errorf("web-%d: %v", n, got)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "255.255.255.255:80 of tcp 10.96.0.1:80") {
		t.Errorf("told: %q", told)
	}
}
