package conntrack_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	. "portolan/kernel/conntrack"
	"portolan/kernel/conntrack/conntracktest"
)

// list reads all flows of a filter.
func list(t testing.TB, table *Table, f Filter) (out []Flow) {
	t.Helper()
	for flow, err := range table.Flows(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, flow)
	}
	return out
}

// TestFilters: the kernel's answer to a filter is what Match selects.
func TestFilters(t *testing.T) {
	table := conntracktest.InNamespace(t)
	all := []Flow{
		conntracktest.Flow(UDP, 1001, "10.96.0.10:53", "10.244.0.5:53"),
		conntracktest.Flow(UDP, 1002, "10.96.0.10:53", "10.244.0.6:53"),
		conntracktest.Flow(UDP, 1003, "10.96.0.10:53", "10.96.0.10:53"),
		conntracktest.Flow(UDP, 1004, "192.0.2.1:30053", "10.244.0.5:53"),
		conntracktest.Flow(TCP, 1005, "10.96.0.10:53", "10.244.0.5:53"),
		conntracktest.Flow(TCP, 1006, "10.96.0.11:80", "10.244.0.5:8080"),
		conntracktest.Flow(UDP, 1007, "[fd00:96::10]:53", "[fd00:244::5]:53"),
		conntracktest.Flow(TCP, 1008, "[fd00:96::10]:53", "[fd00:244::5]:53"),
		conntracktest.Flow(SCTP, 1009, "10.96.0.10:53", "10.244.0.5:53"),
	}
	all[5].Status, all[5].State = 0, 1 // SYN_SENT
	conntracktest.Create(t, all...)
	addr := netip.MustParseAddr
	for _, c := range []struct {
		filter Filter
		ports  []uint16 // of the clients
	}{
		{Filter{}, []uint16{1001, 1002, 1003, 1004, 1005, 1006, 1009}},
		{Filter{IPv6: true}, []uint16{1007, 1008}},
		{Filter{Proto: UDP}, []uint16{1001, 1002, 1003, 1004}},
		{Filter{Proto: UDP, To: addr("10.96.0.10")}, []uint16{1001, 1002, 1003}},
		{Filter{Proto: UDP, To: addr("10.96.0.10"), ToPort: 53, From: addr("10.244.0.5"), FromPort: 53}, []uint16{1001}},
		{Filter{Proto: UDP, ToPort: 30053}, []uint16{1004}},
		{Filter{From: addr("10.244.0.5")}, []uint16{1001, 1004, 1005, 1006, 1009}},
		{Filter{To: addr("10.96.0.10")}, []uint16{1001, 1002, 1003, 1005, 1009}},
		{Filter{Proto: TCP, FromPort: 8080}, []uint16{1006}},
		{Filter{Proto: TCP, Unreplied: true}, []uint16{1006}},
		{Filter{IPv6: true, Proto: TCP, To: addr("fd00:96::10"), From: addr("fd00:244::5")}, []uint16{1008}},
		{Filter{Proto: SCTP}, []uint16{1009}},
	} {
		got := map[uint16]bool{}
		for _, f := range list(t, table, c.filter) {
			got[f.Orig.Src.Port()] = true
		}
		for _, port := range c.ports {
			if !got[port] {
				t.Errorf("%+v: flow of port %d is missing", c.filter, port)
			}
			delete(got, port)
		}
		if len(got) > 0 {
			t.Errorf("%+v: also %v", c.filter, got)
		}
	}
}

// TestDelete: what was read is removed, once; another entry in its place stays.
func TestDelete(t *testing.T) {
	table := conntracktest.InNamespace(t)
	const many = 1000
	for i := range many {
		conntracktest.Create(t, conntracktest.Flow(UDP, uint16(2000+i), "10.96.0.10:53", "10.244.0.5:53"))
	}
	conntracktest.Create(t, conntracktest.Flow(UDP, 1000, "[fd00:96::10]:53", "[fd00:244::5]:53"))
	flows := append(list(t, table, Filter{}), list(t, table, Filter{IPv6: true})...)
	again := flows[5]
	if n, err := table.Delete(flows); n != many+1 || err != nil {
		t.Fatalf("%d removed, %v", n, err)
	}
	conntracktest.Create(t, again)
	if n, err := table.Delete(flows); n != 0 || err != nil {
		t.Errorf("%d removed the second time, %v", n, err)
	}
	if left := list(t, table, Filter{}); len(left) != 1 || left[0].Orig != again.Orig {
		t.Errorf("left is %v", left)
	}
}

// TestDeleteWhileReading: entries may be removed under the eyes of who reads them.
func TestDeleteWhileReading(t *testing.T) {
	table := conntracktest.InNamespace(t)
	const many = 2000
	for i := range many {
		conntracktest.Create(t, conntracktest.Flow(UDP, uint16(2000+i), "10.96.0.10:53", "10.244.0.5:53"))
	}
	removed := 0
	for f, err := range table.Flows(t.Context(), Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := table.Delete([]Flow{f})
		if err != nil {
			t.Fatal(err)
		}
		removed += n
	}
	if left := list(t, table, Filter{}); removed != many || len(left) != 0 {
		t.Errorf("%d removed, %d left", removed, len(left))
	}
}

// TestStopReading: who stops early, or whose time is over, can read again.
func TestStopReading(t *testing.T) {
	table := conntracktest.InNamespace(t)
	for i := range 2000 {
		conntracktest.Create(t, conntracktest.Flow(UDP, uint16(2000+i), "10.96.0.10:53", "10.244.0.5:53"))
	}
	for range table.Flows(t.Context(), Filter{}) {
		break
	}
	ctx, cancel := contextOf(t)
	var last error
	for _, err := range table.Flows(ctx, Filter{}) {
		cancel()
		last = err
	}
	if !errors.Is(last, ctx.Err()) || last == nil {
		t.Errorf("a reader whose context ended got %v", last)
	}
	if got := len(list(t, table, Filter{})); got != 2000 {
		t.Errorf("%d flows", got)
	}
}

func contextOf(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// TestListen: connections that begin are heard of, in order.
func TestListen(t *testing.T) {
	conntracktest.InNamespace(t)
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	var flows []Flow
	for i := range 500 {
		flows = append(flows, conntracktest.Flow(UDP, uint16(2000+i), "10.96.0.10:53", "10.244.0.5:53"))
	}
	conntracktest.Create(t, flows...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	heard := 0
	err = l.Hear(ctx, func(f Flow, err error) {
		if err != nil || f.Orig != flows[heard].Orig {
			t.Errorf("number %d: %v, %v", heard, f, err)
		}
		if heard++; heard == len(flows) {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%d heard, %v", heard, err)
	}
}
