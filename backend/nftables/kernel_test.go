package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/backend/backendtest"
	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// live returns a Backend that writes to the namespace of the calling thread.
func live(t testing.TB, f service.Family) *Backend {
	t.Helper()
	conn, err := nft.Dial()
	if err != nil {
		t.Fatal(err)
	}
	b := New(Options{Family: f, MasqueradeBit: 14, Conn: conn, Trouble: func(err error) { t.Errorf("later: %v", err) }})
	b.removeAfter = time.Hour // see settle
	t.Cleanup(func() {
		b.stop()
		conn.Close()
	})
	return b
}

// olderThan tells whether the running kernel comes before Linux major.minor.
func olderThan(t testing.TB, major, minor int) bool {
	t.Helper()
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if n, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &a, &b); n != 2 {
		t.Fatal(err)
	}
	return a < major || a == major && b < minor
}

// stop keeps the timer from writing after the test.
func (b *Backend) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unschedule()
	b.late = newRemovals()
}

// family has the addresses of an IP family.
type family = backendtest.Family

// What the tests of all backends share.
var (
	families    = backendtest.Families
	at          = backendtest.At
	program     = backendtest.Program
	apply       = backendtest.Apply
	nothingToDo = backendtest.NothingToDo
)

func nodeOf(f family) service.Node {
	return service.Node{Name: "node1", Detector: service.PodDetector{CIDRs: []netip.Prefix{netip.MustParsePrefix(f.PodCIDR)}},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}}
}

// mix has a Service of every kind.
func mix(f family) []*service.Service {
	return f.Webs(slices.Concat(kinds(f), optionKinds(f))...)
}

// kinds are those that the fields of a Service ask for.
func kinds(f family) []func(*service.Service) {
	return []func(*service.Service){
		func(s *service.Service) {},
		func(s *service.Service) { s.ExternalIPs = []netip.Addr{at(f.External, 1)} },
		func(s *service.Service) {
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 2)}
			s.SourceRanges = []netip.Prefix{netip.MustParsePrefix(f.Clients), netip.PrefixFrom(at(f.External, 9), at(f.External, 9).BitLen())}
		},
		func(s *service.Service) { s.Ports[0].NodePort = 30080 },
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30081
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 3)}
		},
		func(s *service.Service) {
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30082
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
		},
		func(s *service.Service) { s.InternalPolicy = service.Local },
		func(s *service.Service) { s.Ports[0].Endpoints = nil; s.Ports[0].NodePort = 30083 },
		func(s *service.Service) {
			s.AffinityTimeout = 3 * time.Hour
			s.Ports[0].NodePort = 30084
			s.ExternalIPs = []netip.Addr{at(f.External, 4)}
		},
		func(s *service.Service) {
			s.AffinityTimeout = 10 * time.Second
			s.ExternalPolicy = service.Local
			s.LoadBalancerIPs = []netip.Addr{at(f.External, 5)}
		},
		func(s *service.Service) { s.Ports[0].Protocol = service.UDP },
		func(s *service.Service) { s.Ports[0].Protocol = service.SCTP },
	}
}

// optionKinds are those that annotations ask for, and endpoints of several ports.
func optionKinds(f family) []func(*service.Service) {
	return []func(*service.Service){
		func(s *service.Service) {
			s.Ports[0].NodePort = 30085
			s.Ports[0].Endpoints[0].Weight, s.Ports[0].Endpoints[1].Weight = 3, service.Weightless
		},
		func(s *service.Service) {
			s.Algorithm = service.RoundRobin
			s.Ports[0].NodePort = 30086
			s.Ports[0].Endpoints[0].Weight = 2
			s.ExternalPolicy = service.Local
		},
		func(s *service.Service) {
			s.Algorithm = service.RoundRobin
			s.AffinityTimeout = 10 * time.Second
			s.Ports[0].Endpoints[0].Warmth = 5
			s.ExternalIPs = []netip.Addr{at(f.External, 6)}
		},
		func(s *service.Service) {
			s.RejectNoLocal = true
			s.ExternalPolicy = service.Local
			s.Ports[0].NodePort = 30087
			s.Ports[0].Endpoints = s.Ports[0].Endpoints[1:2]
		},
		func(s *service.Service) { // endpoints of different ports, one address among them with two
			s.AffinityTimeout = 10 * time.Second
			s.InternalPolicy, s.ExternalPolicy = service.Local, service.Local
			s.Ports[0].NodePort = 30088
			first, second := &s.Ports[0].Endpoints[0], &s.Ports[0].Endpoints[1]
			first.Addr = netip.AddrPortFrom(first.Addr.Addr(), 9090)
			second.Addr, second.Node = netip.AddrPortFrom(first.Addr.Addr(), 9091), first.Node
		},
	}
}

func settle(t testing.TB, b *Backend) {
	t.Helper()
	if err := b.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func ruleset(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft list ruleset: %v\n%s", err, out)
	}
	return string(out)
}

func load(t testing.TB, text string) {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft -f: %v\n%s", err, out)
	}
}

// TestRoundTrip: what is rendered can be written, reads back as it was, and is
// listed by nft in a form that nft takes again, with the clients that are remembered.
func TestRoundTrip(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			list := mix(f)
			program(t, b, sync, nodeOf(f), list...)
			apply(t, sync)
			nothingToDo(t, b, nodeOf(f), list...)
			remember(t, b, "default/web-9:http", at(f.External, 1), f.Endpoints(1, 8080)[0].Addr)
			listing := ruleset(t)
			load(t, "flush ruleset\n"+listing)
			if again := ruleset(t); again != listing {
				t.Errorf("the listing does not load as it was; first\n%s\nthen\n%s", listing, again)
			}
		})
	}
}
