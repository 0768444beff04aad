package nftables

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"portolan/service"
)

// TestKeptIsBounded: what is kept of ways to balance that nobody uses any more does not
// grow for ever, and what is made anew is as it was.
func TestKeptIsBounded(t *testing.T) {
	for _, f := range families {
		b := New(Options{Family: f.Family, MasqueradeBit: 14})
		of := func(i int) (balancer, learner) {
			ports := portsOf([]service.Endpoint{f.Endpoints(1, uint16(1+i))[0]})
			return balancer{all: i + 1, local: true, here: 1}, learner{seconds(time.Minute), ports}
		}
		k, l := of(0)
		balance, learn := b.chainsOf(k), b.affinityObjects(l)
		for i := range 3 * mostKept {
			b.chainsOf(balancer{all: i + 1, local: true, here: 1})
			_, l := of(i)
			b.affinityObjects(l)
			if _, err := b.reader.verdict(fmt.Sprintf("goto lb-%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		for what, n := range map[string]int{"balancers": len(b.common.balancers), "learners": len(b.common.learners), "verdicts": len(b.reader.verdicts)} {
			if n > mostKept {
				t.Errorf("%d %s are kept", n, what)
			}
		}
		if again := b.chainsOf(k); !slices.Equal(again.chains, balance.chains) || !slices.Equal(again.sets, balance.sets) {
			t.Errorf("%v, and at first %v", again, balance)
		}
		if again := b.affinityObjects(l); !slices.Equal(again.chains, learn.chains) || !slices.Equal(again.sets, learn.sets) {
			t.Errorf("%v, and at first %v", again, learn)
		}
	}
}
