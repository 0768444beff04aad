package nftables

import (
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"testing"

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
// others ask for stays. Many go by a new set, since their removal one by one would keep
// the kernel busy for a minute here; a few do not.
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
			program(t, b, sync, nodeOf(f), list...)
			apply(t, sync)
			settle(t, b)
			set := sourcesHandle(t, b)
			write := func(what string, anew bool) {
				t.Helper()
				apply(t, sync)
				settle(t, b)
				nothingToDo(t, b, nodeOf(f), list...)
				before := set
				if set = sourcesHandle(t, b); (set != before) != anew {
					t.Errorf("%s: the set %s before, the set %s after it", what, before, set)
				}
			}
			change := func(at int, ranges []netip.Prefix) {
				s := *list[at]
				s.SourceRanges = ranges
				list[at] = &s
				program(t, b, sync, nodeOf(f), list[at])
			}

			change(services-1, someRanges(f, 0, each))
			write("all ranges of one others", true)
			change(services-1, append(someRanges(f, 0, each-1), someRanges(f, 9000, 1)...))
			write("one range of one another", false)
			change(services-1, someRanges(f, 0, each/2))
			change(services-2, someRanges(f, 9000, 2*each))
			write("fewer of one, more of another", true)
			for _, s := range list[services/2:] {
				sync.Remove(s.Name.String())
			}
			list = slices.Clone(list[:services/2])
			write("half of the Services gone", true)
			change(0, nil)
			write("no ranges of one", true)
		})
	}
}

var handle = regexp.MustCompile(`set ` + sources + ` \{ # handle (\d+)`)

// sourcesHandle is the number of the set of source ranges; a set that is made anew has
// another.
func sourcesHandle(t *testing.T, b *Backend) string {
	t.Helper()
	text, err := exec.Command("nft", "--handle", "--terse", "list", "table", b.table.Family.String(), b.table.Name).CombinedOutput()
	found := handle.FindSubmatch(text)
	if err != nil || found == nil {
		t.Fatalf("nft list table: %v: %s", err, text)
	}
	return string(found[1])
}
