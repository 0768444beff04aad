package nftables

import (
	"context"
	"testing"

	"portolan/dataplane"
	"portolan/internal/netnstest"
	"portolan/kernel/nft"
)

// misfit puts an element into a set that no text stands for: the bytes between two parts
// of its key are not zero.
func misfit(t *testing.T, b *Backend, set, name string) {
	t.Helper()
	s, _ := shapeOf(set)
	key, err := b.words.parseKey(nil, s.key, name)
	if err != nil {
		t.Fatal(err)
	}
	key[len(key)-1] = 1
	e := nft.Element{Key: key}
	if s.holds != nothing {
		e.Data = []byte(host(7))
	}
	batch := nft.NewBatch(b.table)
	batch.AddElement(set, e, 0)
	if err := b.options.Conn.Commit(batch); err != nil {
		t.Fatal(err)
	}
}

// TestMisfits: what others made, and cannot be removed by itself, at once or later, does
// not stop what comes after it: the table is replaced.
func TestMisfits(t *testing.T) {
	for _, f := range families {
		addr := at(f.Cluster, 99).String()
		for set, name := range map[string]string{
			serviceIPs: addr + " . tcp . 80",
			hairpin:    addr + " . " + addr + " . tcp . 80",
		} {
			t.Run(f.Family.String()+" "+set, func(t *testing.T) {
				netnstest.Enter(t)
				b := live(t, f.Family)
				sync := dataplane.NewSync(b)
				list := mix(f)
				program(t, b, sync, nodeOf(f), list...)
				apply(t, sync)
				misfit(t, b, set, name)
				list = append(list, f.Web(50, 1))
				program(t, b, sync, nodeOf(f), list...)
				failed := 0
				for range 3 {
					_, err := sync.Reconcile(context.Background())
					if err == nil {
						err = b.Settle(context.Background())
					}
					if err != nil {
						failed++
					}
				}
				if failed == 0 || failed == 3 {
					t.Errorf("%d writes failed", failed)
				}
				nothingToDo(t, b, nodeOf(f), list...)
			})
		}
	}
}
