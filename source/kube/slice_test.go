package kube

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

// Times of the annotation that can be read, the oldest first.
func TestTriggers(t *testing.T) {
	dated := func(text string) *Slice {
		s := &discovery.EndpointSlice{}
		s.Annotations = map[string]string{v1.EndpointsLastChangeTriggerTime: text}
		return NewSlice(s)
	}
	got := triggers([]*Slice{dated("2026-01-02T03:04:05.6Z"), {}, dated("soon"), dated("2026-01-01T01:00:00+01:00")})
	if len(got) != 2 || got[0].Format("2006-01-02T15:04:05.9Z") != "2026-01-01T00:00:00Z" || !got[1].After(got[0]) {
		t.Errorf("%v", got)
	}
}

// The name of a node is kept once, however many endpoints it has.
func TestNodesShareTheirName(t *testing.T) {
	slice := func(at ...string) *Slice {
		s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4}
		for i, node := range at {
			name := strings.Clone(node)
			s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{fmt.Sprintf("10.0.0.%d", i)}, NodeName: &name})
		}
		return NewSlice(s)
	}
	one, other := slice("node1", "node2", "node1"), slice("node1")
	data := func(e endpoint) *byte { return unsafe.StringData(e.at(80, weights{}).Node) }
	if data(one.endpoints[0]) != data(one.endpoints[2]) || data(one.endpoints[0]) != data(other.endpoints[0]) || data(one.endpoints[0]) == data(one.endpoints[1]) {
		t.Error("the name of one node is kept twice")
	}
}
