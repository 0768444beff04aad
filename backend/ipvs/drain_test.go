package ipvs

import (
	"net/netip"
	"testing"
	"time"

	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestLookIsNotPutOff: writes to other servers, however often they come, do not put off
// the look at a real server that waits; one that may go sooner is looked at sooner.
func TestLookIsNotPutOff(t *testing.T) {
	b := New(Options{Family: service.IPv4})
	wait := func(p ipvs.Protocol, since time.Time) {
		addr := netip.MustParseAddrPort("10.96.0.1:80")
		b.draining[realID{ipvs.ID{Protocol: p, Addr: addr}, addr}] = since
		b.schedule()
	}
	b.mu.Lock() // no look takes place
	defer b.mu.Unlock()
	defer b.unschedule()
	wait(ipvs.TCP, time.Now())
	first := b.next
	b.schedule()
	if b.next != first {
		t.Errorf("put off by %v", b.next.Sub(first))
	}
	wait(ipvs.UDP, time.Now().Add(time.Second)) // room for a busy machine
	if sooner := first.Sub(b.next); sooner <= 0 {
		t.Errorf("UDP is looked at %v after TCP", -sooner)
	}
	for real := range b.draining {
		b.draining[real] = time.Now().Add(-time.Minute)
	}
	b.unschedule()
	if b.schedule(); time.Until(b.next) <= underWay {
		t.Error("what could not be removed is looked for all the time")
	}
	clear(b.draining)
	b.schedule()
	if b.timer != nil {
		t.Error("nothing waits, and it is looked all the same")
	}
}
