package agent

import (
	"reflect"
	"slices"
	"time"

	"portolan/service"
)

// Changes counts Services: those that changed themselves, and those whose
// endpoints did. One that came or went counts as both when it has endpoints.
type Changes struct{ Services, Endpoints int }

func (c Changes) add(o Changes) Changes {
	return Changes{c.Services + o.Services, c.Endpoints + o.Endpoints}
}

// changesOf counts what differs between two Snapshots; before may be nil.
func changesOf(before, after *service.Snapshot) Changes {
	var out Changes
	if after == nil {
		return out
	}
	for c := range after.Changes(before) {
		bare, endpoints := compare(c.Old, c.New)
		if bare {
			out.Services++
		}
		if endpoints {
			out.Endpoints++
		}
	}
	return out
}

// compare tells what of a Service differs; one of both may be nil.
func compare(a, b *service.Service) (bare, endpoints bool) {
	if a == nil || b == nil {
		there := a
		if there == nil {
			there = b
		}
		return true, there.EndpointCount() > 0
	}
	x, y := *a, *b
	x.Ports, y.Ports = withoutEndpoints(a.Ports), withoutEndpoints(b.Ports)
	x.Triggers, y.Triggers = nil, nil
	bare = !reflect.DeepEqual(x, y)
	if len(a.Ports) != len(b.Ports) || !slices.EqualFunc(a.Triggers, b.Triggers, time.Time.Equal) {
		return bare, true
	}
	for i := range a.Ports {
		if !reflect.DeepEqual(a.Ports[i].Endpoints, b.Ports[i].Endpoints) {
			return bare, true
		}
	}
	return bare, false
}

// withoutEndpoints leaves what a Service itself says of its ports.
func withoutEndpoints(ports []service.Port) []service.Port {
	out := slices.Clone(ports)
	for i := range out {
		out[i].Endpoints = nil
	}
	return out
}

// Changed counts every change that was published so far, the first Snapshot
// included; a Service that changes twice counts twice.
func (a *Agent) Changed() Changes {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Pending counts what was published and is not written in a family yet; a Service
// that changed back counts no more. It costs what changed.
func (a *Agent) Pending(f service.Family) Changes {
	for _, l := range a.loops {
		if l.family == f {
			return changesOf(l.written.Load(), a.newest.Load())
		}
	}
	return Changes{}
}

// Written returns the Snapshot that was written last in a family; nil before the
// first.
func (a *Agent) Written(f service.Family) *service.Snapshot {
	for _, l := range a.loops {
		if l.family == f {
			return l.written.Load()
		}
	}
	return nil
}
