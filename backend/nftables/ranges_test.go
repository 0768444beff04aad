package nftables

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/service"
)

// someRanges are n networks, others for each start.
func someRanges(f family, start, n int) (out []netip.Prefix) {
	for i := range n {
		i += start
		if f.Family == service.IPv4 {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0}), 24))
		} else {
			out = append(out, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, byte(i >> 8), byte(i)}), 48))
		}
	}
	return out
}

// TestManyRangesGo: what a Service no longer asks for of many source ranges goes, what
// others ask for stays, and the kernel is not kept busy for it: a removal one by one
// takes a minute here.
func TestManyRangesGo(t *testing.T) {
	const services, each = 40, 100
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			var list []*service.Service
			for i := range services {
				s := f.Web(i+1, 2)
				s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{at(f.External, i+1)}, someRanges(f, i*each, each)
				list = append(list, s)
			}
			began := time.Now()
			program(t, b, sync, nodeOf(f), list...)
			apply(t, sync)
			settle(t, b)
			first := time.Since(began)
			write := func(what string) {
				t.Helper()
				apply(t, sync)
				settle(t, b)
				nothingToDo(t, b, nodeOf(f), list...)
				t.Logf("%s: %v", what, time.Since(began))
				began = time.Now()
			}
			change := func(at int, ranges []netip.Prefix) {
				s := *list[at]
				s.SourceRanges = ranges
				list[at] = &s
				program(t, b, sync, nodeOf(f), list[at])
			}

			start := time.Now()
			began = start
			change(services-1, someRanges(f, 0, each))
			write("all ranges of one others")
			change(services-1, append(someRanges(f, 0, each-1), someRanges(f, 9000, 1)...))
			write("one range of one another")
			change(services-1, someRanges(f, 0, each/2))
			change(services-2, someRanges(f, 9000, 2*each))
			write("fewer of one, more of another")
			for _, s := range list[services/2:] {
				sync.Remove(s.Name.String())
			}
			list = slices.Clone(list[:services/2])
			write("half of the Services gone")
			change(0, nil)
			write("no ranges of one")
			t.Logf("the first write took %v, all after it %v", first, time.Since(start))
			// One by one they take 200 times as long, and five writes of this sort some 10.
			if time.Since(start) > 60*first {
				t.Error("ranges go one by one")
			}
		})
	}
}
