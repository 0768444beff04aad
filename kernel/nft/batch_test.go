package nft

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
)

var testTable = Table{IPv4, "test"}

// ports is a set of port numbers.
func ports(name string) Set { return Set{Name: name, KeyType: TypePort, KeyLen: 2} }

func portElement(n int) Element { return Element{Key: []byte{byte(n >> 8), byte(n)}} }

func commit(t testing.TB, c *Conn, fill func(*Batch)) error {
	t.Helper()
	b := NewBatch(testTable)
	fill(b)
	return c.Commit(b)
}

func count(t testing.TB, c *Conn, set string) int {
	t.Helper()
	n := 0
	if err := c.Elements(testTable, set, func() { n = 0 }, func(Element) { n++ }); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestManyElements: more elements than one attribute has room for.
func TestManyElements(t *testing.T) {
	netnstest.Enter(t)
	c := dial(t)
	const n = 5_000
	err := commit(t, c, func(b *Batch) {
		b.AddTable(0)
		b.AddSet(ports("many"), 0)
		for i := range n {
			b.AddElement("many", portElement(i), i)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, c, "many"); got != n {
		t.Errorf("%d elements, want %d", got, n)
	}
}

// TestRefusedElement: the error names the element in the middle of a message, and
// nothing of the batch was taken.
func TestRefusedElement(t *testing.T) {
	netnstest.Enter(t)
	c := dial(t)
	if err := commit(t, c, func(b *Batch) { b.AddTable(0); b.AddSet(ports("p"), 0) }); err != nil {
		t.Fatal(err)
	}
	err := commit(t, c, func(b *Batch) {
		for i := range 2500 {
			e := portElement(i)
			if i == 1234 || i == 2345 {
				e.Key = append(e.Key, 0, 0, 0) // not the length of a port
			}
			b.AddElement("p", e, 100_000+i)
		}
		b.DeleteElement("p", portElement(9999), 7)
	})
	var refused *BatchError
	if !errors.As(err, &refused) {
		t.Fatalf("error is %v", err)
	}
	want := []Refused{{101234, true, unix.EINVAL}, {102345, true, unix.EINVAL}, {7, true, unix.ENOENT}}
	if !slices.Equal(refused.Refused, want) {
		t.Errorf("refused: %+v", refused.Refused)
	}
	if n := count(t, c, "p"); n != 0 {
		t.Errorf("%d elements of a refused batch", n)
	}
	if err := commit(t, c, func(b *Batch) { b.AddElement("p", portElement(1), 0) }); err != nil {
		t.Errorf("a good batch after a bad one: %v", err)
	}
}

// TestRefusedObjects: a chain that is led to, a set that is looked into, and a
// rule that looks into nothing.
func TestRefusedObjects(t *testing.T) {
	netnstest.Enter(t)
	c := dial(t)
	look := Rule{Chain: "a", Exprs: []Expr{Payload{TransportHeader, 2, 2, Reg}, Lookup{Set: "p", Sreg: Reg}, Decide{Verdict{Jump, "b"}}}}
	err := commit(t, c, func(b *Batch) {
		b.AddTable(0)
		b.AddSet(ports("p"), 0)
		b.AddChain(Chain{Name: "a"}, 0)
		b.AddChain(Chain{Name: "b"}, 0)
		b.AddRule(look, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	bad := look
	bad.Exprs = []Expr{Lookup{Set: "nowhere", Sreg: Reg}}
	for want, fill := range map[Refused]func(*Batch){
		{1, true, unix.EBUSY}:  func(b *Batch) { b.AddChain(Chain{Name: "c"}, 0); b.DeleteChain("b", 1) },
		{2, true, unix.EBUSY}:  func(b *Batch) { b.DeleteSet("p", 2) },
		{3, true, unix.ENOENT}: func(b *Batch) { b.AddRule(bad, 3) },
		{4, true, unix.ENOENT}: func(b *Batch) { b.FlushChain("nowhere", 4) },
	} {
		var refused *BatchError
		if err := commit(t, c, fill); !errors.As(err, &refused) || !slices.Equal(refused.Refused, []Refused{want}) {
			t.Errorf("want %+v: %v", want, err)
		}
	}
	// A loop is found when the batch as a whole is taken.
	err = commit(t, c, func(b *Batch) {
		b.AddChain(Chain{Name: "base", Type: "filter", Hook: Input}, 0)
		b.AddRule(Rule{Chain: "base", Exprs: []Expr{Decide{Verdict{Jump, "a"}}}}, 5)
		b.AddRule(Rule{Chain: "b", Exprs: []Expr{Decide{Verdict{Jump, "a"}}}}, 6)
	})
	if !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.EMLINK) {
		t.Errorf("loop: %v", err)
	}
}

// TestCheck: a check takes nothing and finds the same errors.
func TestCheck(t *testing.T) {
	netnstest.Enter(t)
	c := dial(t)
	before, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(testTable)
	b.AddTable(0)
	b.AddSet(ports("p"), 0)
	b.AddElement("p", portElement(1), 0)
	if err := c.Check(b); err != nil {
		t.Errorf("a good batch: %v", err)
	}
	b.Reset()
	b.AddTable(0)
	b.AddChain(Chain{Name: "x", Type: "nat", Hook: Forward}, 3)
	var refused *BatchError
	if err := c.Check(b); !errors.As(err, &refused) || len(refused.Refused) != 1 || refused.Refused[0].Tag != 3 {
		t.Errorf("a bad batch: %v", err)
	}
	if there, err := c.HasTable(testTable); err != nil || there {
		t.Errorf("the table is there after checks: %v", err)
	}
	if after, err := c.Generation(); err != nil || after != before {
		t.Errorf("generation %d, then %d, %v", before, after, err)
	}
}

// What TestReadBack writes.
var (
	everySet = []Set{
		ports("p"),
		{Name: "v", KeyType: TypePort, KeyLen: 2, DataType: TypeVerdict},
		{Name: "d", KeyType: Concat(TypeProto, TypePort), KeyLen: 8, DataType: TypePort, DataLen: 2, Size: 77, Userdata: []byte{0, 4, 0, 0, 0, 0}},
		{Name: "dyn", Flags: FlagDynamic | FlagTimeout, KeyType: TypePort, KeyLen: 2, DataType: TypePort, DataLen: 2, Size: 10},
		{Name: "r", Flags: FlagInterval | FlagConcat, KeyType: Concat(TypeProto, TypePort), KeyLen: 8, Fields: []uint32{1, 2}},
	}
	everyChain = []Chain{{Name: "a"}, {Name: "nat", Type: "nat", Hook: Postrouting, Priority: 100}, {Name: "f", Type: "filter", Hook: Prerouting, Priority: -110}}
)

// everyRule has every expression.
func everyRule(f Family) []Rule {
	return []Rule{
		{Chain: "a", Exprs: []Expr{
			Payload{TransportHeader, 2, 2, Reg}, Cmp{Reg, true, "\x00\x50"}, Meta{unix.NFT_META_MARK, Reg + 3}, Bitwise{Reg + 3, Reg + 3, "\xff\xff\xff\xff", "\x01\x00\x00\x00"},
			MetaSet{unix.NFT_META_MARK, Reg + 3}, Ct{unix.NFT_CT_STATE, Reg + 4}, Immediate{Reg + 8, "\x00\x01"}, Numgen{Reg, 7, 65536, true}, Fib{Reg, true}, Counter{},
			Update{"dyn", Reg, Reg, 3000, false}, Reject{f}}, Userdata: []byte("P\x01x")},
		{Chain: "nat", Exprs: []Expr{Masquerade{true}}},
		{Chain: "f", Exprs: []Expr{Payload{TransportHeader, 2, 2, Reg}, Lookup{"v", Reg, NoReg, true, false}}},
		{Chain: "f", Exprs: []Expr{Payload{TransportHeader, 2, 2, Reg}, Lookup{"p", Reg, 0, false, true}, Decide{Verdict{Drop, ""}}}},
	}
}

// TestReadBack: sets, chains, rules and elements read as they were written.
func TestReadBack(t *testing.T) {
	for _, f := range []Family{IPv4, IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			netnstest.Enter(t)
			c := dial(t)
			table := Table{f, "test"}
			b := NewBatch(table)
			b.AddTable(0)
			for _, s := range everySet {
				b.AddSet(s, 0)
			}
			for _, ch := range everyChain {
				b.AddChain(ch, 0)
			}
			rules := everyRule(f)
			for _, r := range rules {
				b.AddRule(r, 0)
			}
			b.AddElement("v", Element{Key: []byte{0, 80}, Verdict: &Verdict{Goto, "a"}, Comment: "x y"}, 0)
			b.AddElement("r", Element{Key: []byte{6, 0, 0, 0, 0, 1, 0, 0}, KeyEnd: []byte{6, 0, 0, 0, 0, 9, 0, 0}}, 0)
			if err := c.Commit(b); err != nil {
				t.Fatal(err)
			}
			gotSets, err := c.Sets(table)
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range everySet {
				if s.DataType != 0 {
					s.Flags |= FlagMap
				}
				if s.DataType == TypeVerdict {
					s.DataLen = 16
				}
				if got, want := fmt.Sprintf("%+v", gotSets[i]), fmt.Sprintf("%+v", s); got != want {
					t.Errorf("set %s, want %s", got, want)
				}
			}
			gotChains, err := c.Chains(table)
			if err != nil || !slices.Equal(gotChains, everyChain) {
				t.Errorf("chains %+v, %v", gotChains, err)
			}
			gotRules, err := c.Rules(table)
			if err != nil || fmt.Sprintf("%+v", gotRules) != fmt.Sprintf("%+v", rules) {
				t.Errorf("rules\n%+v, want\n%+v, %v", gotRules, rules, err)
			}
			seen := ""
			for _, set := range []string{"v", "r"} {
				if err := c.Elements(table, set, func() {}, func(e Element) { seen += fmt.Sprintf("%x %x %v %s;", e.Key, e.KeyEnd, e.Verdict, e.Comment) }); err != nil {
					t.Fatal(err)
				}
			}
			if want := "0050  &{-4 a} x y;0600000000010000 0600000000090000 <nil> ;"; seen != want {
				t.Errorf("elements %s", seen)
			}
		})
	}
}
