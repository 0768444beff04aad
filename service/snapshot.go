package service

import (
	"hash/maphash"
	"iter"
	"maps"
)

// Snapshot is everything known at one moment. It is immutable: With returns a
// new one that shares what did not change, so that finding the difference of
// two Snapshots costs what changed and not what is there. The zero Snapshot is
// empty.
type Snapshot struct {
	Node      Node
	shards    [shardCount]*shard
	services  int
	endpoints int
}

// A change copies one shard, a few dozen Services even in the largest
// clusters, and the array of shard pointers (8 KiB).
const shardCount = 1024

type shard map[Name]*Service

var shardSeed = maphash.MakeSeed()

func shardOf(n Name) int {
	return int(maphash.Comparable(shardSeed, n) % shardCount)
}

// Len is the number of Services.
func (s *Snapshot) Len() int { return s.services }

// Endpoints is the number of endpoints of all Services, ports and states.
func (s *Snapshot) Endpoints() int { return s.endpoints }

// Service returns one Service, nil when it is not there.
func (s *Snapshot) Service(n Name) *Service {
	if sh := s.shards[shardOf(n)]; sh != nil {
		return (*sh)[n]
	}
	return nil
}

// All yields every Service, in no order.
func (s *Snapshot) All() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for _, sh := range s.shards {
			if sh == nil {
				continue
			}
			for _, svc := range *sh {
				if !yield(svc) {
					return
				}
			}
		}
	}
}

// With returns the Snapshot after a change: the Services of put are added or
// take the place of those of their name, those of gone are removed. The
// large-cluster flag of the Node is kept up to date, with hysteresis.
func (s *Snapshot) With(node Node, put []*Service, gone []Name) *Snapshot {
	next := *s
	next.Node = node
	copied := make(map[int]bool, len(put)+len(gone))
	edit := func(n Name) shard {
		i := shardOf(n)
		if !copied[i] {
			copied[i] = true
			fresh := shard{}
			if old := next.shards[i]; old != nil {
				fresh = maps.Clone(*old)
			}
			next.shards[i] = &fresh
		}
		return *next.shards[i]
	}
	drop := func(sh shard, n Name) {
		if old := sh[n]; old != nil {
			next.services--
			next.endpoints -= old.EndpointCount()
			delete(sh, n)
		}
	}
	for _, n := range gone {
		drop(edit(n), n)
	}
	for _, svc := range put {
		sh := edit(svc.Name)
		drop(sh, svc.Name)
		sh[svc.Name] = svc
		next.services++
		next.endpoints += svc.EndpointCount()
	}
	next.Node.LargeCluster = next.endpoints > LargeClusterOn ||
		(s.Node.LargeCluster && next.endpoints >= LargeClusterOff)
	return &next
}

// BetweenThresholds tells whether LargeCluster is what it was in the Snapshot before.
func (s *Snapshot) BetweenThresholds() bool {
	return LargeClusterOff <= s.endpoints && s.endpoints <= LargeClusterOn
}

// Change is one Service that differs between two Snapshots: Old is nil for one
// that came, New for one that went.
type Change struct{ Old, New *Service }

// Changes yields what differs from prev, which may be nil, in no order.
func (s *Snapshot) Changes(prev *Snapshot) iter.Seq[Change] {
	if prev == nil {
		prev = &Snapshot{}
	}
	return func(yield func(Change) bool) {
		for i := range s.shards {
			if s.shards[i] != prev.shards[i] && !yieldChanges(s.shards[i], prev.shards[i], yield) {
				return
			}
		}
	}
}

// yieldChanges compares two shards; it is false when yield wants no more.
func yieldChanges(now, before *shard, yield func(Change) bool) bool {
	var a, b shard
	if before != nil {
		a = *before
	}
	if now != nil {
		b = *now
	}
	for n, old := range a {
		if b[n] == nil && !yield(Change{Old: old}) {
			return false
		}
	}
	for n, svc := range b {
		if a[n] != svc && !yield(Change{Old: a[n], New: svc}) {
			return false
		}
	}
	return true
}
