package nftables

import (
	"context"
	"testing"

	"portolan/dataplane"
	"portolan/internal/netnstest"
)

// meddled is a Backend beside which somebody does something just before it writes.
type meddled struct {
	*Backend
	meddle func()
}

func (m meddled) Apply(ctx context.Context, p dataplane.Plan) error {
	m.meddle()
	return m.Backend.Apply(ctx, p)
}

// TestChangesAtFirst: nobody listens before both families were written to an empty
// kernel, and then it is known whether others changed anything meanwhile.
func TestChangesAtFirst(t *testing.T) {
	for name, meddle := range map[string]func(){
		"nobody else":   func() {},
		"somebody else": func() { load(t, "table ip theirs; delete table ip theirs") },
	} {
		t.Run(name, func(t *testing.T) {
			netnstest.Enter(t)
			first := &FirstWrites{}
			var heard []<-chan dataplane.Notice
			var syncs []*dataplane.Sync
			for _, f := range families {
				b := live(t, f.Family)
				b.options.First = first
				s := dataplane.NewSync(meddled{b, meddle})
				program(t, b, s, nodeOf(f), mix(f)...)
				syncs, heard = append(syncs, s), append(heard, b.Changes(t.Context()))
			}
			isHeard := func(family int) bool {
				select {
				case <-heard[family]:
					return true
				default:
					return false
				}
			}
			apply(t, syncs[0])
			if isHeard(0) {
				t.Error("heard before the other family was written")
			}
			apply(t, syncs[1])
			// What the other family writes may count as that of others.
			if got, want := isHeard(1), name == "somebody else"; got != want {
				t.Errorf("heard %v, want %v", got, want)
			}
			if isHeard(0); isHeard(0) {
				t.Error("heard twice")
			}
			load(t, "flush chain ip portolan services")
			<-heard[0]
		})
	}
}
