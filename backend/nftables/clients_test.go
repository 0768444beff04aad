package nftables

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
	"portolan/service"
)

// remember puts a client into the map, as the learning chain does.
func remember(t testing.TB, b *Backend, scopeName string, client netip.Addr, endpoint netip.AddrPort) {
	t.Helper()
	key, err := b.words.parseKey(nil, []part{address, protocol}, client.String()+" . tcp")
	if err != nil {
		t.Fatal(err)
	}
	data, err := b.words.parseKey(nil, []part{address, port}, endpoint.Addr().String()+" . "+fmt.Sprint(endpoint.Port()))
	if err != nil {
		t.Fatal(err)
	}
	batch := nft.NewBatch(b.table)
	batch.AddElement(affinity, nft.Element{Key: append(key, host(b.ids.of(scopeName))...), Data: data}, 0)
	if err := b.options.Conn.Commit(batch); err != nil {
		t.Fatal(err)
	}
}

// remembered lists "scope endpoint" of all clients, sorted.
func remembered(t testing.TB, b *Backend) (out []string) {
	t.Helper()
	err := b.options.Conn.Elements(b.table, affinity, func() { out = nil }, func(e nft.Element) {
		text, _ := b.words.keyText(nil, []part{address, port}, e.Data)
		id := e.Key[len(e.Key)-4:]
		name := ""
		for n, number := range b.ids.byName {
			if host(number) == string(id) {
				name = n
			}
		}
		out = append(out, name+" "+string(text))
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

// TestClientsMoveOn: a client of an endpoint that goes is forgotten in the same
// Apply; others keep theirs; the clients of a Service that goes, or that has no
// affinity any more, are forgotten; and a restart changes nothing of it.
func TestClientsMoveOn(t *testing.T) {
	for _, f := range families {
		t.Run(f.family.String(), func(t *testing.T) {
			netnstest.Enter(t)
			b := live(t, f.family)
			sync := dataplane.NewSync(b)
			sticky := func(number, endpoints int) *service.Service {
				s := f.web(number, endpoints)
				s.AffinityTimeout = time.Hour
				s.Ports[0].NodePort = uint16(30000 + number)
				return s
			}
			program(t, b, sync, f.node(), sticky(1, 3), sticky(2, 3))
			apply(t, sync)
			const one, two = "default/web-1:http", "default/web-2:http"
			third := f.endpoints(3, 8080)[2].Addr
			for i, e := range f.endpoints(3, 8080) {
				remember(t, b, one, at(f.external, i+1), e.Addr)
				remember(t, b, two, at(f.external, i+1), e.Addr)
			}
			all := remembered(t, b)
			if len(all) != 6 {
				t.Fatal(all)
			}
			check := func(what string, gone ...string) {
				t.Helper()
				all = slices.DeleteFunc(all, func(s string) bool { return slices.Contains(gone, s) })
				if got := remembered(t, b); !slices.Equal(got, all) {
					t.Errorf("%s: %v, want %v", what, got, all)
				}
			}
			text := func(name string, e netip.AddrPort) string {
				return fmt.Sprintf("%s %s . %d", name, e.Addr(), e.Port())
			}
			// A fourth endpoint moves nobody.
			program(t, b, sync, f.node(), sticky(1, 4))
			apply(t, sync)
			check("one more")
			// Without the third, in a process that knows nothing of before.
			settle(t, b)
			again := live(t, f.family)
			sync = dataplane.NewSync(again)
			program(t, again, sync, f.node(), sticky(1, 2), sticky(2, 3))
			apply(t, sync)
			b = again
			check("one less", text(one, third))
			// Other endpoints of the same number.
			moved := sticky(2, 3)
			moved.Ports[0].Endpoints[2].Addr = netip.AddrPortFrom(at(f.pod, 77), 8080)
			program(t, b, sync, f.node(), moved)
			apply(t, sync)
			check("one instead", text(two, third))
			// A client that came to the old endpoint after all is forgotten later.
			remember(t, b, two, at(f.external, 50), third)
			settle(t, b)
			check("later")
			// No affinity any more.
			program(t, b, sync, f.node(), f.web(1, 2))
			apply(t, sync)
			check("no affinity", text(one, f.endpoints(1, 8080)[0].Addr), text(one, f.endpoints(2, 8080)[1].Addr))
		})
	}
}

// TestScopes: all addresses of a Service port share a scope, those with another
// list of endpoints have their own, and names are not too long for nft.
func TestScopes(t *testing.T) {
	f := families[0]
	s := f.web(1, 3)
	s.AffinityTimeout = time.Hour
	s.ExternalIPs = []netip.Addr{at(f.external, 1)}
	s.Ports[0].NodePort = 30001
	scopes := func() map[string]int {
		count := map[string]int{}
		for _, pf := range service.Decide(f.node(), s, f.family) {
			for _, fe := range pf.Frontends {
				count[scopeOf(fe)]++
			}
		}
		return count
	}
	if got := scopes(); len(got) != 1 || got["default/web-1:http"] != 3 {
		t.Errorf("policy Cluster: %v", got)
	}
	s.ExternalPolicy = service.Local
	if got := scopes(); len(got) != 2 || got["default/web-1:http/local"] != 2 {
		t.Errorf("policy Local: %v", got)
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
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	s := f.web(1, 2)
	s.AffinityTimeout = time.Hour
	program(t, b, sync, f.node(), s)
	if _, err := sync.Apply(context.Background()); err != nil {
		t.Fatal(err)
	}
	remember(t, b, "default/web-1:http", at(f.external, 1), s.Ports[0].Endpoints[0].Addr)
	var keys [][]byte
	if err := b.options.Conn.Elements(b.table, affinity, func() {}, func(e nft.Element) { keys = append(keys, slices.Clone(e.Key)) }); err != nil {
		t.Fatal(err)
	}
	gone := slices.Clone(keys[0])
	gone[3]++
	left, err := b.forgetKeys([][]byte{gone, keys[0]})
	if err != nil || len(left) != 1 {
		t.Fatalf("first try: %v left, %v", left, err)
	}
	if left, err = b.forgetKeys(left); err != nil || len(left) != 0 || len(remembered(t, b)) != 0 {
		t.Errorf("second try: %v left, %v", left, err)
	}
}
