package conntrack

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"portolan/kernel/conntrack"
	"portolan/service"
)

// clients are a fake table whose connections have clients: those that the kernel
// forgot are balanced anew with their next packet, and reset if they come to another
// endpoint; then their client connects again.
type clients struct {
	fakeTable
	endpoints []netip.AddrPort
	rand      *rand.Rand
	idle      func(conntrack.Flow) bool // says nothing more
	port      uint16
	resets    int
	fixed     bool                      // nothing balances
	cutOff    func(conntrack.Flow) bool // an answer was on its way when it was forgotten
	heard     func(conntrack.Flow, error)
	hearing   chan struct{} // closed when heard is there
}

func (c *clients) Hear(ctx context.Context, heard func(conntrack.Flow, error)) error {
	c.heard = heard
	close(c.hearing)
	<-ctx.Done()
	return ctx.Err()
}

func (c *clients) open(at netip.AddrPort) {
	c.port++
	c.flows = append(c.flows, c.flow(netip.AddrPortFrom(addrPort("192.0.2.7:1").Addr(), c.port), at, conntrack.TCPEstablished))
}

func (c *clients) flow(client, at netip.AddrPort, state uint8) conntrack.Flow {
	return conntrack.Flow{Proto: conntrack.TCP, State: state, Status: conntrack.SeenReply,
		Orig: conntrack.Tuple{Src: client, Dst: addrPort("10.96.0.10:80")}, Reply: conntrack.Tuple{Src: at, Dst: client}}
}

func (c *clients) balance() netip.AddrPort { return c.endpoints[c.rand.IntN(len(c.endpoints))] }

func (c *clients) Delete(flows []conntrack.Flow) (int, error) {
	<-c.hearing
	removed, err := c.fakeTable.Delete(flows)
	for _, f := range flows {
		if c.idle(f) {
			continue
		}
		at := c.balance()
		if c.fixed {
			at = f.Reply.Src
		}
		again := c.flow(f.Orig.Src, at, conntrack.TCPEstablished)
		c.heard(again, nil)
		cut := c.cutOff != nil && c.cutOff(f)
		if at == f.Reply.Src && !cut {
			c.flows = append(c.flows, again)
			continue
		}
		if cut && f.Orig.Src.Port()%2 == 0 {
			again.State = conntrack.TCPClose
			c.flows = append(c.flows, again)
		}
		c.resets++ // and forgotten at once
		c.open(c.balance())
	}
	return removed, err
}

// run rebalances a Service with those endpoints; live says how many connections each
// has at first.
func (c *clients) run(fraction, rate float64, live ...int) (Plan, Progress) {
	s := web()
	s.ExternalPolicy = service.Cluster
	p := &s.Ports[0]
	p.Endpoints, p.NodePort = nil, 0
	c.hearing = make(chan struct{})
	c.rand = rand.New(rand.NewPCG(1, 2))
	for i, n := range live {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 1, byte(i)}), 8080)
		c.endpoints = append(c.endpoints, at)
		p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: at, Ready: true})
		for range n {
			c.open(at)
		}
	}
	snapshot := snapshotOf(s)
	count := NewCount(snapshot, service.IPv4, local)
	for _, f := range c.flows {
		count.Add(f)
	}
	r := Rebalance{Snapshot: snapshot, Service: s, Plan: PlanRebalance(count.Loads()[0], fraction), Rate: rate, Table: c, Begins: c, Local: local, Told: func(Progress) {}}
	progress, err := r.Run(context.Background())
	if err != nil {
		panic(err) // the fake does not fail
	}
	return r.Plan, progress
}

func talking(conntrack.Flow) bool { return false }

// TestRebalanceHalvesTheSkew: of 20 connections on one of two endpoints.
func TestRebalanceHalvesTheSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clients{idle: talking}
		start := time.Now()
		plan, p := c.run(1, 5, 20, 0)
		if p.Load.Skew() > 0.25 || p.Resets != c.resets || c.resets > plan.MostResets() || p.Shed != p.Resets+p.Unbroken || p.Silent != 0 {
			t.Errorf("skew %v, %d resets of at most %d: %+v", p.Load.Skew(), c.resets, plan.MostResets(), p)
		}
		if least := time.Duration(p.Shed/5-1) * time.Second; time.Since(start) < least {
			t.Errorf("%d shed in %v, 5 a second were allowed", p.Shed, time.Since(start))
		}
	})
}

// TestRebalanceBounds: whatever there is, no more connections are reset than was
// announced, and silent ones are counted as if they were.
func TestRebalanceBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		live := rapid.SliceOfN(rapid.IntRange(0, 40), 2, 5).Draw(rt, "live")
		fraction := rapid.Float64Range(0.01, 1).Draw(rt, "fraction")
		rate := rapid.Float64Range(0.2, 50).Draw(rt, "rate")
		silent := uint16(rapid.IntRange(1, 10).Draw(rt, "one in so many is silent"))
		cut := uint16(rapid.IntRange(3, 10).Draw(rt, "one in so many gets a late answer"))
		live[0]++ // some connection is there
		synctest.Test(t, func(*testing.T) {
			c := &clients{
				idle:   func(f conntrack.Flow) bool { return f.Orig.Src.Port()%silent == 1 },
				cutOff: func(f conntrack.Flow) bool { return f.Orig.Src.Port()%cut == 2 },
			}
			plan, p := c.run(fraction, rate, live...)
			if c.resets != p.Resets || p.Resets+p.Silent > plan.MostResets() {
				rt.Errorf("%d resets, %d were announced: %+v", c.resets, plan.MostResets(), p)
			}
			if p.Shed != p.Resets+p.Unbroken+p.Silent {
				rt.Errorf("what became of them: %+v", p)
			}
		})
	})
}

// TestRebalanceEnds: where nothing balances connections, it comes to an end.
func TestRebalanceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &clients{idle: talking, fixed: true}
		if _, p := c.run(1, 100, 20, 0); p.Resets != 0 || p.Unbroken != mostTries*20 {
			t.Errorf("%+v", p)
		}
	})
}
