package ipvs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan/dataplane"
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

// drainConnected programs a Service beside others, connects to its only endpoint for as
// long as the test runs, and has the Service be as given afterwards.
func drainConnected(t *testing.T, b *Backend, sync *dataplane.Sync, f family, after *service.Service, others ...*service.Service) {
	t.Helper()
	listener, err := net.Listen("tcp", at(f.Node, 11).String()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := f.Web(1, 1)
	s.Ports[0].Endpoints[0].Addr = netip.AddrPortFrom(at(f.Node, 11), 8080)
	program(t, b, sync, self(f), append([]*service.Service{s}, others...)...)
	apply(t, sync)
	conn, err := net.DialTimeout("tcp", at(f.Cluster, 1).String()+":80", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	program(t, b, sync, self(f), after)
	apply(t, sync)
}

// TestDrain: a real server with a connection gets weight 0 and stays, until its time
// is over.
func TestDrain(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	drainConnected(t, b, sync, f, f.Web(1, 0), f.Web(2, 2))
	for range 2 {
		if got, want := reals(t, b, ipvs.TCP, at(f.Cluster, 1), 80), []string{"192.0.2.11:8080 0"}; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if err := b.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	nothingToDo(t, b, self(f), f.Web(1, 0), f.Web(2, 2))
	b.options.DrainWithin = time.Nanosecond
	if err := b.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := reals(t, b, ipvs.TCP, at(f.Cluster, 1), 80); len(got) > 0 {
		t.Errorf("still there: %v", got)
	}
}

// TestServiceGoesWhileItDrains: a Service that drops, having no endpoint here, and is
// deleted while its last real server still has a connection leaves no virtual server
// behind, which nobody would know again: its address and the entries of its sets are gone.
func TestServiceGoesWhileItDrains(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	away := f.Web(1, 1)
	away.InternalPolicy = service.Local
	away.Ports[0].Endpoints[0].Node = "elsewhere"
	drainConnected(t, b, sync, f, away)
	if got, want := reals(t, b, ipvs.TCP, at(f.Cluster, 1), 80), []string{"192.0.2.11:8080 0"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	sync.Remove(away.Name.String())
	apply(t, sync)
	left, err := b.options.Kernel.Servers.Servers()
	if err != nil || len(left) > 0 || len(b.draining)+len(b.retired) > 0 {
		t.Errorf("left: %v, %v waits, %v; %v", left, b.draining, b.retired, err)
	}
}

// question sends a datagram from a client to a pod, and tells whom the pod saw. Neither
// waits longer than half a minute for another one.
func question(t *testing.T, client net.Conn, pod net.PacketConn) (from net.Addr) {
	t.Helper()
	limit := time.Now().Add(30 * time.Second)
	_, err := client.Write([]byte("question"))
	if err := errors.Join(err, client.SetDeadline(limit), pod.SetDeadline(limit)); err != nil {
		t.Fatal(err)
	}
	if _, from, err = pod.ReadFrom(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return from
}

// TestAnswersUnderWay: a UDP real server that goes gets no new flows at once, and what
// it answers to those that it has is translated back for a moment; then it is removed.
func TestAnswersUnderWay(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	pod, err := net.ListenPacket("udp", at(f.Node, 11).String()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	with, without := f.Web(1, 1), f.Web(1, 0)
	with.Ports[0].Endpoints[0].Addr = netip.AddrPortFrom(at(f.Node, 11), 8080)
	for _, s := range []*service.Service{with, without} {
		s.Ports[0].Protocol = service.UDP
	}
	program(t, b, sync, self(f), with)
	apply(t, sync)
	client, err := net.Dial("udp", at(f.Cluster, 1).String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buf := make([]byte, 16)
	from := question(t, client, pod)
	program(t, b, sync, self(f), without)
	apply(t, sync)
	here := func() []string { return reals(t, b, ipvs.UDP, at(f.Cluster, 1), 80) }
	b.mu.Lock() // so that it stays as it is
	if waited := time.Since(b.draining[realID{ipvs.ID{Protocol: ipvs.UDP, Addr: netip.AddrPortFrom(at(f.Cluster, 1), 80)}, with.Ports[0].Endpoints[0].Addr}]); waited < underWay {
		if got, want := here(), []string{"192.0.2.11:8080 0"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, err := pod.WriteTo([]byte("answer"), from); err != nil {
			t.Error(err)
		}
		if n, err := client.Read(buf); err != nil || string(buf[:n]) != "answer" {
			t.Errorf("%q, %v", buf[:n], err)
		}
	} else {
		t.Logf("nothing seen of the time in between: this machine was busy for %v", waited)
	}
	b.mu.Unlock()
	left := func() []string {
		b.mu.Lock() // of the connection to the kernel
		defer b.mu.Unlock()
		return here()
	}
	for deadline := time.Now().Add(30 * time.Second); len(left()) > 0; time.Sleep(underWay / 10) {
		if time.Now().After(deadline) {
			t.Fatalf("still there: %v", left())
		}
	}
	nothingToDo(t, b, self(f), without)
}

// TestPortReuse: a client that uses a port again, whose connection went to a real
// server of weight 0, gets another one at once, as the kernel is set up by us.
func TestPortReuse(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	sync := dataplane.NewSync(b)
	served := make(chan string, 16)
	s := f.Web(1, 2)
	for i := range s.Ports[0].Endpoints {
		addr := netip.AddrPortFrom(at(f.Node, 11), uint16(8081+i))
		s.Ports[0].Endpoints[i] = service.Endpoint{Addr: addr, Ready: true, Serving: true, Node: "node1"}
		listener, err := net.Listen("tcp", addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				served <- addr.String()
				conn.Close()
			}
		}()
	}
	program(t, b, sync, self(f), s)
	apply(t, sync)
	call := func() string {
		dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: at(f.Node, 11).AsSlice(), Port: 20001}}
		conn, err := dialer.Dial("tcp", at(f.Cluster, 1).String()+":80")
		if err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).SetLinger(0) // so that the port is free at once
		conn.Close()
		return <-served
	}
	for range 4 {
		gone := call()
		s = f.Web(1, 0)
		for _, e := range []uint16{8081, 8082} {
			if addr := netip.AddrPortFrom(at(f.Node, 11), e); addr.String() != gone {
				s.Ports[0].Endpoints = append(s.Ports[0].Endpoints, service.Endpoint{Addr: addr, Ready: true, Serving: true, Node: "node1"})
			}
		}
		program(t, b, sync, self(f), s)
		apply(t, sync)
		if now := call(); now == gone {
			t.Errorf("%s, which left, was given a new connection", gone)
		}
	}
}
