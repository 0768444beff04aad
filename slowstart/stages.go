// Package slowstart gives fresh endpoints of Services that ask for it a growing
// share: it stands between where Snapshots come from and who programs them, and sets
// the Warmth of endpoints.
//
// An endpoint is fresh when it becomes ready while its Service is known. What is
// ready when this process starts, or when its Service comes, has its full share at
// once: nothing would be gained by all of them being fresh together.
package slowstart

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"portolan/service"
)

// stages knows since when endpoints are fresh. It reads no clock.
type stages struct {
	in    *service.Snapshot
	fresh map[service.Name]*warming
}

// warming is a Service with fresh endpoints.
type warming struct {
	since  map[netip.AddrPort]time.Time
	plain  *service.Service // as it came
	staged *service.Service // with the Warmth of its endpoints
}

// next takes a Snapshot, a new one or the last one again, and returns it with the
// Warmth that endpoints have now, and when that will be different; zero for never.
// It costs what changed and what is fresh.
func (s *stages) next(in *service.Snapshot, now time.Time) (*service.Snapshot, time.Time) {
	if s.fresh == nil {
		s.fresh = map[service.Name]*warming{}
	}
	if s.in != nil {
		for c := range in.Changes(s.in) {
			s.change(c, now)
		}
	}
	s.in = in
	var again time.Time
	var put []*service.Service
	for name, w := range s.fresh {
		due, staged := w.stage(now)
		if staged == nil {
			delete(s.fresh, name)
			continue
		}
		if again.IsZero() || due.Before(again) {
			again = due
		}
		put = append(put, staged)
	}
	if len(put) == 0 {
		return in, again
	}
	return in.With(in.Node, put, nil), again
}

// change notes which endpoints are fresh.
func (s *stages) change(c service.Change, now time.Time) {
	switch {
	case c.New == nil:
		delete(s.fresh, c.Old.Name)
		return
	case c.New.SlowStart == 0 || c.Old == nil:
		delete(s.fresh, c.New.Name)
		return
	}
	w := s.fresh[c.New.Name]
	if w == nil {
		w = &warming{since: map[netip.AddrPort]time.Time{}}
		s.fresh[c.New.Name] = w
	}
	w.plain, w.staged = c.New, nil
	before, after := ready(c.Old), ready(c.New)
	for addr := range after {
		if !before[addr] {
			w.since[addr] = now
		}
	}
	maps.DeleteFunc(w.since, func(addr netip.AddrPort, _ time.Time) bool { return !after[addr] })
}

// ready are the endpoints that may begin to be fresh.
func ready(s *service.Service) map[netip.AddrPort]bool {
	out := map[netip.AddrPort]bool{}
	for _, p := range s.Ports {
		for _, e := range p.Endpoints {
			if e.Ready {
				out[e.Addr] = true
			}
		}
	}
	return out
}

// stage returns the Service with the Warmth of now, the same one while nothing is
// different, and when that ends. It is nil when nothing is fresh any more.
func (w *warming) stage(now time.Time) (due time.Time, staged *service.Service) {
	step := w.plain.SlowStart / service.WarmthSteps
	warmth := map[netip.AddrPort]service.Warmth{}
	for addr, since := range w.since {
		at := now.Sub(since)/step + 1
		if at >= service.WarmthSteps {
			delete(w.since, addr)
			continue
		}
		warmth[addr] = service.Warmth(at)
		if d := since.Add(at * step); due.IsZero() || d.Before(due) {
			due = d
		}
	}
	if len(warmth) == 0 {
		return due, nil
	}
	fresh := warm(w.plain, warmth)
	if w.staged == nil || !same(w.staged, fresh) {
		w.staged = fresh
	}
	return due, w.staged
}

// warm returns a Service like s whose endpoints have that Warmth.
func warm(s *service.Service, warmth map[netip.AddrPort]service.Warmth) *service.Service {
	out := *s
	out.Ports = slices.Clone(s.Ports)
	for i := range out.Ports {
		p := &out.Ports[i]
		p.Endpoints = slices.Clone(p.Endpoints)
		for j := range p.Endpoints {
			p.Endpoints[j].Warmth = warmth[p.Endpoints[j].Addr]
		}
	}
	return &out
}

// same tells whether the endpoints of two forms of one Service are as warm.
func same(a, b *service.Service) bool {
	for i := range a.Ports {
		for j := range a.Ports[i].Endpoints {
			if a.Ports[i].Endpoints[j].Warmth != b.Ports[i].Endpoints[j].Warmth {
				return false
			}
		}
	}
	return true
}
