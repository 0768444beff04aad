package nftables

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// remember puts a client into the map, as the learning chain does.
func remember(t testing.TB, b *Backend, scopeName string, client netip.Addr, endpoint netip.AddrPort) {
	t.Helper()
	batch := nft.NewBatch(b.table)
	set, e := clientElement(b, scopeNumber(b, scopeName), client, endpoint)
	batch.AddElement(set, e, 0)
	if err := b.options.Conn.Commit(batch); err != nil {
		t.Fatal(err)
	}
}

// scopeNumber finds the number of the only scope of that name, whatever chain learns.
func scopeNumber(b *Backend, name string) uint32 {
	for known, id := range b.ids.byName {
		if scope, _, is := strings.Cut(known, " "); is && scope == name {
			return id
		}
	}
	return 0
}

// clientElement is what is remembered of a client over TCP, and the map for it.
func clientElement(b *Backend, scope uint32, client netip.Addr, endpoint netip.AddrPort) (set string, e nft.Element) {
	addr, to := client.AsSlice(), endpoint.Addr().AsSlice()
	if b.options.Family == service.IPv6 {
		return affinityAt + fmt.Sprint(endpoint.Port()), nft.Element{Key: append(addr[4:], host(scope)...), Data: to}
	}
	port := binary.BigEndian.AppendUint16(nil, endpoint.Port())
	return affinity, nft.Element{Key: append(append(addr, unix.IPPROTO_TCP, 0, 0, 0), host(scope)...), Data: append(append(to, port...), 0, 0)}
}

// remembered lists "scope endpoint" of all clients, sorted.
func remembered(t testing.TB, b *Backend) (out []string) {
	t.Helper()
	sets, err := b.options.Conn.Sets(b.table)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range sets {
		s, _ := shapeOf(set.Name)
		if !s.isClients() {
			continue
		}
		err := b.options.Conn.Elements(b.table, set.Name, func() {}, func(e nft.Element) {
			endpoint := append(slices.Clone(e.Data), b.words.portIn(set.Name, s)...)
			text := b.words.keyText(nil, endpointParts, endpoint)
			scope, _, _ := strings.Cut(b.ids.name(binary.NativeEndian.Uint32(e.Key[len(e.Key)-4:])), " ")
			out = append(out, scope+" "+string(text))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return out
}

// clientsStand is a Backend in a namespace of its own, with the clients that its maps
// should know.
type clientsStand struct {
	t    *testing.T
	f    family
	b    *Backend
	sync *dataplane.Sync
	all  []string
}

func newClientsStand(t *testing.T, f family) *clientsStand {
	netnstest.Enter(t)
	b := live(t, f.Family)
	return &clientsStand{t: t, f: f, b: b, sync: dataplane.NewSync(b)}
}

// sticky is a Service with affinity.
func sticky(f family, number, endpoints int) *service.Service {
	s := f.Web(number, endpoints)
	s.AffinityTimeout = time.Hour
	s.Ports[0].NodePort = uint16(30000 + number)
	return s
}

// write has these Services be as given.
func (c *clientsStand) write(list ...*service.Service) {
	c.t.Helper()
	program(c.t, c.b, c.sync, nodeOf(c.f), list...)
	apply(c.t, c.sync)
}

// restart goes on with a process that knows nothing of before.
func (c *clientsStand) restart() {
	c.t.Helper()
	settle(c.t, c.b)
	c.b = live(c.t, c.f.Family)
	c.sync = dataplane.NewSync(c.b)
}

// check holds what the maps know against all that they did but those who are gone.
func (c *clientsStand) check(what string, gone ...string) {
	c.t.Helper()
	c.all = slices.DeleteFunc(c.all, func(s string) bool { return slices.Contains(gone, s) })
	if got := remembered(c.t, c.b); !slices.Equal(got, c.all) {
		c.t.Errorf("%s: %v, want %v", what, got, c.all)
	}
}

// clientText is how remembered tells of a client of an endpoint.
func clientText(name string, e netip.AddrPort) string {
	return fmt.Sprintf("%s %s . %d", name, e.Addr(), e.Port())
}

// TestClientsMoveOn: a client of an endpoint that goes is forgotten in the same
// Apply; others keep theirs; the clients of a Service that goes, or that has no
// affinity any more, are forgotten; and a restart changes nothing of it.
func TestClientsMoveOn(t *testing.T) {
	const one, two = "default/web-1:http", "default/web-2:http"
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			c := newClientsStand(t, f)
			c.write(sticky(f, 1, 3), sticky(f, 2, 3))
			first, third := f.Endpoints(1, 8080)[0].Addr, f.Endpoints(3, 8080)[2].Addr
			for i, e := range f.Endpoints(3, 8080) {
				remember(t, c.b, one, at(f.External, i+1), e.Addr)
				remember(t, c.b, two, at(f.External, i+1), e.Addr)
			}
			c.all = remembered(t, c.b)
			if len(c.all) != 6 {
				t.Fatal(c.all)
			}
			c.write(sticky(f, 1, 4))
			c.check("a fourth endpoint moves nobody")
			c.restart()
			c.write(sticky(f, 1, 2), sticky(f, 2, 3))
			c.check("without the third", clientText(one, third))
			moved := sticky(f, 2, 3)
			moved.Ports[0].Endpoints[2].Addr = netip.AddrPortFrom(at(f.Pod, 77), 8080)
			c.write(moved)
			c.check("other endpoints of the same number", clientText(two, third))
			remember(t, c.b, two, at(f.External, 50), third)
			settle(t, c.b)
			c.check("a client that came to the old endpoint after all is forgotten later")
			ports := sticky(f, 2, 3)
			ports.Ports[0].Endpoints[2].Addr = netip.AddrPortFrom(first.Addr(), 9090)
			c.write(ports)
			c.check("another port of the same address is another endpoint")
			remember(t, c.b, two, at(f.External, 51), ports.Ports[0].Endpoints[2].Addr)
			c.all = append(c.all, clientText(two, ports.Ports[0].Endpoints[2].Addr))
			slices.Sort(c.all)
			ports = sticky(f, 2, 3)
			ports.Ports[0].Endpoints[0].Addr = netip.AddrPortFrom(first.Addr(), 9090)
			c.write(ports)
			c.check("the first port gone", clientText(two, first))
			c.write(f.Web(1, 2))
			c.check("no affinity any more", clientText(one, first), clientText(one, f.Endpoints(2, 8080)[1].Addr))
		})
	}
}

// TestScopes: all addresses of a Service port share a scope, those with another
// list of endpoints have their own, and names are not too long for nft.
func TestScopes(t *testing.T) {
	f := families[0]
	s := f.Web(1, 3)
	s.AffinityTimeout = time.Hour
	s.ExternalIPs = []netip.Addr{at(f.External, 1)}
	s.Ports[0].NodePort = 30001
	scopes := func() map[string]int {
		count := map[string]int{}
		for _, pf := range service.Decide(nodeOf(f), s, f.Family) {
			for _, fe := range pf.Frontends {
				count[scopeOf(fe, learner{timeout: "3600"})]++
			}
		}
		return count
	}
	if got := scopes(); len(got) != 1 || got["default/web-1:http learn-3600"] != 3 {
		t.Errorf("policy Cluster: %v", got)
	}
	s.ExternalPolicy = service.Local
	if got := scopes(); len(got) != 2 || got["default/web-1:http/local learn-3600"] != 2 {
		t.Errorf("policy Local: %v", got)
	}
	s.InternalPolicy = service.Local
	if got := scopes(); len(got) != 2 || got["default/web-1:http/here learn-3600"] != 1 || got["default/web-1:http/local learn-3600"] != 2 {
		t.Errorf("both policies Local: %v", got)
	}
	for _, name := range []string{"a", "b"} {
		long := make([]byte, 63)
		for i := range long {
			long[i] = 'x'
		}
		s.Name = service.Name{Namespace: string(long), Name: string(long[1:]) + name}
		for scope := range scopes() {
			if len(scope) > 127 {
				t.Errorf("%d bytes: %s", len(scope), scope)
			}
		}
	}
}

// TestForgetsWhatIsGone: clients that expire while they are forgotten stop nobody.
func TestForgetsWhatIsGone(t *testing.T) {
	f := families[0]
	netnstest.Enter(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	s := f.Web(1, 2)
	s.AffinityTimeout = time.Hour
	program(t, b, sync, nodeOf(f), s)
	if _, err := sync.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	remember(t, b, "default/web-1:http", at(f.External, 1), s.Ports[0].Endpoints[0].Addr)
	remember(t, b, "default/web-1:http", at(f.External, 50), s.Ports[0].Endpoints[1].Addr)
	var keys [][]byte // of whom one is there
	for i := range 20 {
		_, e := clientElement(b, scopeNumber(b, "default/web-1:http"), at(f.External, i+1), s.Ports[0].Endpoints[0].Addr)
		keys = append(keys, e.Key)
	}
	slices.Reverse(keys)
	err := b.forgetKeys(affinity, keys)
	if got := remembered(t, b); err != nil || !slices.Equal(got, []string{clientText("default/web-1:http", s.Ports[0].Endpoints[1].Addr)}) {
		t.Errorf("remembered %v, %v", got, err)
	}
}

// TestScopeComesBack: clients of a scope that comes back before what is left of it has
// been removed are remembered.
func TestScopeComesBack(t *testing.T) {
	f := families[0]
	netnstest.Enter(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	sticky := func(timeout time.Duration) *service.Service {
		s := f.Web(1, 2)
		s.AffinityTimeout = timeout
		return s
	}
	for _, timeout := range []time.Duration{time.Hour, 0, time.Hour} {
		program(t, b, sync, nodeOf(f), sticky(timeout))
		apply(t, sync)
	}
	remember(t, b, "default/web-1:http", at(f.External, 1), sticky(0).Ports[0].Endpoints[0].Addr)
	settle(t, b)
	if got := remembered(t, b); len(got) != 1 || !strings.HasPrefix(got[0], "default/web-1:http ") {
		t.Errorf("remembered: %q", got)
	}
}

// TestScopeComesBackAfterALook: the same where the table was looked at meanwhile, which no
// more names the scope: it has its number afterwards, by which clients are forgotten.
func TestScopeComesBackAfterALook(t *testing.T) {
	for _, f := range families {
		t.Run(f.Family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.Family)
			sync := dataplane.NewSync(b)
			write := func(timeout time.Duration, look bool) {
				s := f.Web(1, 2)
				s.AffinityTimeout = timeout
				program(t, b, sync, nodeOf(f), s)
				apply(t, sync)
				if look {
					nothingToDo(t, b, nodeOf(f), s)
				}
			}
			write(time.Hour, false)
			write(0, true)
			write(time.Hour, false)
			endpoint := f.Web(1, 2).Ports[0].Endpoints[0].Addr
			remember(t, b, "default/web-1:http", at(f.External, 1), endpoint)
			settle(t, b)
			if n := scopeNumber(b, "default/web-1:http"); n == 0 || len(remembered(t, b)) != 1 {
				t.Errorf("number %d, remembered %q", n, remembered(t, b))
			}
		})
	}
}
