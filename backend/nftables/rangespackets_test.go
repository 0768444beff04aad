package nftables

import (
	"net/netip"
	"os/exec"
	"sync/atomic"
	"testing"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// TestRangesMoveUnnoticed: who may use a Service goes on to do so while very many source
// ranges of others go.
func TestRangesMoveUnnoticed(t *testing.T) {
	netnstest.Enter(t)
	f := families[0]
	endpoint := netip.MustParseAddrPort("10.255.0.1:8080")
	loopback(t, endpoint)
	if out, err := exec.Command("ip", "route", "add", "local", "10.254.0.0/16", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip route: %v: %s", err, out)
	}
	b := live(t, service.IPv4)
	sync := dataplane.NewSync(b)
	sync.Set(dataplane.Owner{}, b.Base(benchNode()))
	used := between{guarded: true}.service(1, endpoint)
	used.SourceRanges = []netip.Prefix{netip.MustParsePrefix("10.254.0.0/16")}
	benchSet(t, sync, b, used)
	const services, each = 40, 100
	for i := range services {
		s := f.Web(i+10, 1)
		s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{at(f.External, i+10)}, someRanges(f, i*each, each)
		benchSet(t, sync, b, s)
	}
	apply(t, sync)
	settle(t, b)
	to := netip.AddrPortFrom(benchAddr(1), 80)
	var calling atomic.Uint32
	stop := startCallers(t, 2, func() error { return between{}.send(caller(calling.Add(1)), to) })
	last := f.Web(services+9, 1)
	last.LoadBalancerIPs = []netip.Addr{at(f.External, services+9)}
	for round := 0; round < rounds && calling.Load() < 3*calls; round++ {
		last.SourceRanges = someRanges(f, 5000+round%2*1000, each)
		benchSet(t, sync, b, last)
		apply(t, sync)
		settle(t, b)
	}
	made, err := stop()
	if err != nil {
		t.Error(err)
	}
	if n := elements(t, b, barred); n > 0 {
		t.Errorf("some of %d calls were dropped", made)
	}
	t.Logf("%d calls", made)
}
