package localhost

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"portolan/service"
)

// picker chooses the endpoint of each new connection or session at a Port.
type picker struct {
	mu     sync.Mutex
	target Target
	turn   int            // with round robin: of the next one
	pinned netip.AddrPort // with affinity: the one that was chosen last
	since  time.Time      // when it was
}

func (p *picker) set(t Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = t
}

// pick is by the algorithm, or with affinity the endpoint of before, as long as it is
// one and was asked for within the time.
func (p *picker) pick(now time.Time) netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.target.Affinity == 0 || now.Sub(p.since) >= p.target.Affinity || !slices.Contains(p.target.Endpoints, p.pinned) {
		p.pinned = p.target.Endpoints[p.slot()]
	}
	p.since = now
	return p.pinned
}

func (p *picker) slot() int {
	n := len(p.target.Endpoints)
	if p.target.Algorithm != service.RoundRobin {
		return rand.IntN(n)
	}
	at := p.turn % n // there may have been more
	p.turn = at + 1
	return at
}

// has tells whether an endpoint is still one.
func (p *picker) has(endpoint netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.target.Endpoints, endpoint)
}
