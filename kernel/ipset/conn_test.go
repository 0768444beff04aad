package ipset

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"portolan/internal/netnstest"
)

// dial opens a Conn in a network namespace of the test's own, whose thread ends with
// the test.
func dial(t *testing.T) *Conn {
	t.Helper()
	netnstest.Enter(t)
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := c.Describe("none"); !errors.Is(err, ErrMissing) {
		t.Skipf("this kernel has no sets: %v", err)
	}
	return c
}

var all = []Type{HashIP, HashIPPort, HashIPPortIP, HashIPPortNet, BitmapPort}

// anEntry has just what the type says.
func anEntry(typ Type, ipv6 bool) *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		addr := func(name string) netip.Addr {
			if ipv6 {
				return netip.AddrFrom16([16]byte{0: 0xfd, 15: rapid.Byte().Draw(t, name), 14: 1})
			}
			return netip.AddrFrom4([4]byte{10, 0, 1, rapid.Byte().Draw(t, name)})
		}
		var e Entry
		if typ != BitmapPort {
			e.Addr = addr("addr")
		}
		if typ != HashIP {
			e.Port = rapid.Uint16().Draw(t, "port")
		}
		if typ != HashIP && typ != BitmapPort {
			e.Protocol = rapid.SampledFrom([]uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP}).Draw(t, "protocol")
		}
		if typ == HashIPPortIP {
			a := addr("source")
			e.Source = netip.PrefixFrom(a, a.BitLen())
		}
		if typ == HashIPPortNet {
			a := addr("source")
			e.Source = netip.PrefixFrom(a, rapid.IntRange(1, a.BitLen()).Draw(t, "bits")).Masked()
		}
		return e
	})
}

// TestText: what is written is read.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		typ := rapid.SampledFrom(all).Draw(t, "type")
		e := anEntry(typ, rapid.Bool().Draw(t, "ipv6")).Draw(t, "entry")
		got, err := typ.Parse(typ.Text(e))
		if err != nil || got != e {
			t.Fatalf("%s: %+v, %v, want %+v", typ.Text(e), got, err, e)
		}
	})
}

// TestNoText: what is no entry is an error.
func TestNoText(t *testing.T) {
	for typ, list := range map[Type][]string{
		HashIP:        {"", "10.0.0.1,tcp:80", "10.0.0.256"},
		HashIPPort:    {"10.0.0.1", "10.0.0.1,80", "10.0.0.1,icmp:8", "10.0.0.1,tcp:65536", "10.0.0.1,tcp:80,10.0.0.1"},
		HashIPPortIP:  {"10.0.0.1,tcp:80", "10.0.0.1,tcp:80,10.0.0.0/8"},
		HashIPPortNet: {"10.0.0.1,tcp:80,10.0.0.1", "10.0.0.1,tcp:80,0.0.0.0/0"},
		BitmapPort:    {"", "tcp:80", "-1"},
	} {
		for _, text := range list {
			if e, err := typ.Parse(text); err == nil {
				t.Errorf("%s: %q was read as %+v", typ, text, e)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(0, "10.0.0.1")
	f.Add(3, "fd00::1,sctp:80,fd00::/8")
	f.Fuzz(func(t *testing.T, number int, text string) {
		typ := all[uint(number)%uint(len(all))]
		e, err := typ.Parse(text)
		if err != nil {
			return
		}
		if again, err := typ.Parse(typ.Text(e)); err != nil || again != e {
			t.Errorf("%q: %+v, then %+v, %v", text, e, again, err)
		}
	})
}

// TestKernel: the kernel lists what was put into a set, and is asked twice without
// harm.
func TestKernel(t *testing.T) {
	c := dial(t)
	for _, typ := range all {
		for _, ipv6 := range []bool{false, true} {
			s := Set{Name: "KUBE-TEST", Type: typ, IPv6: ipv6, MaxElements: 100_000}
			if typ == BitmapPort {
				s.IPv6, s.MaxElements = false, 0
			}
			for range 2 {
				if err := c.Create(s); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := c.Describe(s.Name); err != nil || got != s {
				t.Errorf("%+v, %v, want %+v", got, err, s)
			}
			want := map[Entry]bool{}
			for i := range 500 {
				e := anEntry(typ, ipv6).Example(i)
				want[e] = true
				if err := c.Add(s, e); err != nil {
					t.Fatal(err)
				}
			}
			for e := range want {
				if err := c.Add(s, e); err != nil {
					t.Fatal(err)
				}
				if len(want) > 20 {
					delete(want, e)
					for range 2 {
						if err := c.Delete(s, e); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			got := map[Entry]bool{}
			if err := c.Entries(s.Name, func(e Entry) { got[e] = true }); err != nil {
				t.Fatal(err)
			}
			for e := range want {
				if !got[e] {
					t.Errorf("%s: %s is missing", typ, typ.Text(e))
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %d entries, want %d", typ, len(got), len(want))
			}
			for range 2 {
				if err := c.Destroy(s.Name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestFull: a set that is full says so, and one that takes its place does not.
func TestFull(t *testing.T) {
	c := dial(t)
	small := Set{Name: "KUBE-SMALL", Type: HashIPPort, MaxElements: 4}
	large := Set{Name: "KUBE-LARGE", Type: HashIPPort, MaxElements: 1000}
	for _, s := range []Set{small, large} {
		if err := c.Create(s); err != nil {
			t.Fatal(err)
		}
	}
	entry := func(n uint16) Entry {
		return Entry{Addr: netip.MustParseAddr("10.0.0.1"), Protocol: unix.IPPROTO_TCP, Port: n}
	}
	var err error
	for n := uint16(0); n < 1000 && err == nil; n++ {
		err = c.Add(small, entry(n))
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	if err := c.Swap(small.Name, large.Name); err != nil {
		t.Fatal(err)
	}
	for n := range uint16(900) {
		if err := c.Add(small, entry(n)); err != nil {
			t.Fatal(err)
		}
	}
	var ports []uint16
	if err := c.Entries(small.Name, func(e Entry) { ports = append(ports, e.Port) }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(ports)
	if len(ports) != 900 || ports[899] != 899 {
		t.Errorf("%d entries", len(ports))
	}
}
