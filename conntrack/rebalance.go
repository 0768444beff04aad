package conntrack

import (
	"context"
	"math"
	"net/netip"
	"sync"
	"time"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// Rebalance carries out a Plan for one Service port of TCP. No field may be zero.
type Rebalance struct {
	Snapshot *service.Snapshot
	Service  *service.Service
	Plan     Plan
	Rate     float64 // connections a second
	Table    Table
	Begins   Begins
	Local    []netip.Addr   // addresses of this node's interfaces
	Told     func(Progress) // after each round
}

// Begins tells of the connections that begin in the table.
type Begins interface {
	Hear(context.Context, func(conntrack.Flow, error)) error
}

// Progress is what became of the connections that were shed so far.
type Progress struct {
	Load     Load // as it is now; those that were not heard of are not in it
	Shed     int
	Unbroken int // went on with the endpoint that they had, and still did a round later
	Resets   int // came to another endpoint, or to the same from another port, and are reset
	Silent   int // were not heard of since: they are balanced with the next packet of their client
}

// patience is for how many rounds in a row nothing may be heard of connections that
// were shed, before what is left of them is no longer waited for.
const patience = 3

// mostTries is how often one connection is shed, if it goes on unbroken each time.
// Where nothing balances connections, as with IPVS below, that is the end of it.
const mostTries = 8

// round is one look at the connections of the Service port.
type round struct {
	load  Load
	flows map[netip.AddrPort]map[conntrack.Tuple]conntrack.Flow // by endpoint, then as the client sees it
}

// rebalancing is what a Rebalance remembers.
type rebalancing struct {
	Rebalance
	tried map[conntrack.Tuple]int

	mu       sync.Mutex
	progress Progress
	silent   map[conntrack.Tuple]conntrack.Flow
	unbroken map[conntrack.Tuple]conntrack.Flow // since the last look
	resets   map[netip.AddrPort]int             // by the endpoint that they had
	heard    bool                               // of some that was shed, since the last round
}

// Run sheds connections until no endpoint carries too many, what is allowed is spent,
// or ctx ends, which is no error. At no time have more than the Plan allows been
// reset, or may be.
func (r Rebalance) Run(ctx context.Context) (Progress, error) {
	b := &rebalancing{Rebalance: r, tried: map[conntrack.Tuple]int{}, silent: map[conntrack.Tuple]conntrack.Flow{}, unbroken: map[conntrack.Tuple]conntrack.Flow{}, resets: map[netip.AddrPort]int{}}
	hearing, stop := context.WithCancel(ctx)
	var ear sync.WaitGroup
	ear.Go(func() {
		_ = r.Begins.Hear(hearing, b.note) // what is not heard of counts as if it were reset
	})
	defer ear.Wait()
	defer stop()
	every := time.Duration(float64(time.Second) * max(1, 1/r.Rate))
	news := false // of some that was shed, in the last round: it has to be looked at once more
	for quiet := 0; quiet < patience; quiet++ {
		now, err := b.look(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return b.tell(nil), err
		}
		shed, err := b.shed(now, int(max(1, r.Rate)))
		p := b.tell(&now.load)
		if err != nil || shed == 0 && p.Silent == 0 && !news {
			return p, err
		}
		if !sleep(ctx, every) {
			break
		}
		if news = b.wasHeard(); news || shed > 0 {
			quiet = -1
		}
	}
	return b.tell(nil), nil
}

// tell tells what became of the connections so far; load is nil if it is as before.
func (b *rebalancing) tell(load *Load) Progress {
	b.mu.Lock()
	if load != nil {
		b.progress.Load = *load
	}
	b.progress.Silent = len(b.silent)
	p := b.progress
	b.mu.Unlock()
	if load != nil {
		b.Told(p)
	}
	return p
}

func (b *rebalancing) wasHeard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	heard := b.heard
	b.heard = false
	return heard
}

// look reads the connections of the Service port.
func (b *rebalancing) look(ctx context.Context) (round, error) {
	family := b.Plan.Load.Family
	count := NewCount(b.Snapshot, family, b.Local)
	out := round{flows: map[netip.AddrPort]map[conntrack.Tuple]conntrack.Flow{}}
	filters := set{}
	for a, p := range places(b.Service, family) {
		if b.isPort(p) {
			filters[conntrack.Filter{IPv6: family == service.IPv6, Proto: conntrack.TCP, To: a.To.Addr(), ToPort: a.To.Port()}] = true
		}
	}
	b.mu.Lock()
	unbroken := b.unbroken
	b.unbroken = map[conntrack.Tuple]conntrack.Flow{}
	b.mu.Unlock()
	for f, err := range b.Table.Flows(ctx, filters.list()...) {
		if err != nil {
			return round{}, err
		}
		if p := count.index.Find(f, count.nodePorts); p == nil || p.Service != b.Service || !b.isPort(p) {
			continue
		}
		if _, twice := out.flows[f.Reply.Src][f.Orig]; twice {
			continue
		}
		count.Add(f)
		if out.flows[f.Reply.Src] == nil {
			out.flows[f.Reply.Src] = map[conntrack.Tuple]conntrack.Flow{}
		}
		out.flows[f.Reply.Src][f.Orig] = f
	}
	b.confirm(unbroken, out)
	out.load = b.Plan.Load
	out.load.Live, out.load.Endpoints = 0, nil
	if loads := count.Loads(); len(loads) > 0 {
		out.load = loads[0]
	}
	return out, nil
}

// confirm looks whether connections that seemed unbroken are. An answer that was on
// its way when the kernel forgot its connection comes to a client that does not know
// its sender, and resets it there; the client's next packet makes the entry that it
// had, and the reset that comes back takes it away, or has it closed
// (nf_conntrack_tcp_packet in nf_conntrack_proto_tcp.c).
func (b *rebalancing) confirm(unbroken map[conntrack.Tuple]conntrack.Flow, now round) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for orig, f := range unbroken {
		if is, there := now.flows[f.Reply.Src][orig]; there && is.State != conntrack.TCPClose {
			continue
		}
		b.progress.Unbroken--
		b.progress.Resets++
		b.resets[f.Reply.Src]++
	}
}

func (b *rebalancing) isPort(p *Place) bool {
	return p.Port.Protocol == service.TCP && p.Port.Name == b.Plan.Load.Name.Port
}

// note takes up that a connection begins: one that was shed goes on unbroken only if
// all is translated as it was, the port of a masqueraded client, too.
func (b *rebalancing) note(f conntrack.Flow, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	had, waited := b.silent[f.Orig]
	if err != nil || !waited {
		return
	}
	b.heard = true
	delete(b.silent, f.Orig)
	if had.Reply == f.Reply {
		b.progress.Unbroken++
		b.unbroken[f.Orig] = f
		return
	}
	b.progress.Resets++
	b.resets[had.Reply.Src]++
}

// shed has the kernel forget connections of the endpoints that carry too many, at
// most so many. Those that were tried least come first.
func (b *rebalancing) shed(now round, most int) (int, error) {
	b.mu.Lock()
	flows := b.choose(now, most)
	for _, f := range flows {
		b.tried[f.Orig]++
		b.silent[f.Orig] = f
	}
	b.mu.Unlock()
	if len(flows) == 0 {
		return 0, nil
	}
	removed, err := b.Table.Delete(flows)
	b.mu.Lock()
	b.progress.Shed += removed
	b.mu.Unlock()
	return removed, err
}

// choose takes at most so many flows to cut, those first that were tried least often.
func (b *rebalancing) choose(now round, most int) (flows []conntrack.Flow) {
	for _, s := range b.Plan.Sheds {
		n := min(b.wanted(s, now.load), most-len(flows))
		for tries := range mostTries {
			for orig, f := range now.flows[s.Endpoint] {
				if n > 0 && b.tried[orig] == tries && f.State == conntrack.TCPEstablished {
					n--
					flows = append(flows, f)
				}
			}
		}
	}
	return flows
}

// wanted is how many connections an endpoint should lose now: as many as it takes,
// and no more than it may lose if all of which nothing is certain yet are reset.
func (b *rebalancing) wanted(s Shedding, now Load) int {
	silent, seeming := ofEndpoint(b.silent, s.Endpoint), ofEndpoint(b.unbroken, s.Endpoint)
	for _, e := range now.Endpoints {
		if e.Addr != s.Endpoint || e.State != Ready || now.Live == 0 {
			continue
		}
		share := e.Expected / float64(now.Live)
		excess := float64(e.Live) + share*float64(silent) - share*float64(now.Live+len(b.silent))
		if share >= 1 || excess < 1 {
			return 0
		}
		return min(int(math.Ceil(excess)), s.MostResets-b.resets[s.Endpoint]-silent-seeming)
	}
	return 0
}

func ofEndpoint(flows map[conntrack.Tuple]conntrack.Flow, endpoint netip.AddrPort) (n int) {
	for _, f := range flows {
		if f.Reply.Src == endpoint {
			n++
		}
	}
	return n
}
