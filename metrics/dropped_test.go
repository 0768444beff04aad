package metrics

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"testing"

	"portolan/service"
)

// TestDroppedCounts: what the kernel counts goes to the Service that has the address or
// node port, from the start of this process on, and also when the kernel begins anew.
func TestDroppedCounts(t *testing.T) {
	addr := netip.MustParseAddr
	svc := func(name, ip string, port, nodePort uint16) *service.Service {
		return &service.Service{Name: service.Name{Namespace: "default", Name: name}, ClusterIPs: []netip.Addr{addr(ip)},
			Ports: []service.Port{{Protocol: service.TCP, Port: port, NodePort: nodePort}}}
	}
	web, db := svc("web", "10.96.0.1", 80, 30080), svc("db", "10.96.0.2", 30080, 0) // beside a node port of that number
	s := (&service.Snapshot{}).With(service.Node{}, []*service.Service{web, db}, nil)
	to := func(a string, port uint16, reason service.DropReason, packets uint64) service.Dropped {
		return service.Dropped{Addr: addr(a), Protocol: service.TCP, Port: port, Reason: reason, Packets: packets}
	}
	var now []service.Dropped
	var fails error
	o := &dropCounts{family: service.IPv4, read: func(context.Context) ([]service.Dropped, error) { return now, fails }}
	for _, step := range []struct {
		what  string
		list  []service.Dropped
		fails error
		on    *service.Snapshot
		want  map[dropSeries]uint64
	}{
		{what: "before the start", list: []service.Dropped{to("10.96.0.1", 80, service.DropNoEndpoints, 5)}},
		{what: "nothing new", on: s, list: []service.Dropped{to("10.96.0.1", 80, service.DropNoEndpoints, 5)}},
		{what: "new ones, and a node port with the number of another Service's port", on: s,
			list: []service.Dropped{to("10.96.0.1", 80, service.DropNoEndpoints, 7), to("192.0.2.1", 30080, service.DropNoEndpoints, 1),
				to("10.96.0.2", 30080, service.DropSourceRange, 3), to("10.96.0.9", 1, service.DropNoEndpoints, 3), {Reason: service.DropInvalid, Packets: 4}},
			want: map[dropSeries]uint64{{web.Name, service.DropNoEndpoints}: 3, {db.Name, service.DropSourceRange}: 3, {reason: service.DropInvalid}: 4}},
		{what: "one failed", on: s, fails: errors.New("busy"),
			want: map[dropSeries]uint64{{web.Name, service.DropNoEndpoints}: 3, {db.Name, service.DropSourceRange}: 3, {reason: service.DropInvalid}: 4}},
		{what: "it began anew, and one is gone", on: s.With(service.Node{}, nil, []service.Name{db.Name}),
			list: []service.Dropped{to("10.96.0.1", 80, service.DropNoEndpoints, 2), to("10.96.0.9", 1, service.DropSourceRange, 9)},
			want: map[dropSeries]uint64{{web.Name, service.DropNoEndpoints}: 5, {reason: service.DropInvalid}: 4}},
	} {
		now, fails = step.list, step.fails
		if err := o.look(step.on); !errors.Is(err, step.fails) {
			t.Errorf("%s: %v", step.what, err)
		}
		if !maps.Equal(o.totals, step.want) {
			t.Errorf("%s: %v, want %v", step.what, o.totals, step.want)
		}
	}
}
