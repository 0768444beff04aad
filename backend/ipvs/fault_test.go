package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestRestartGivesWeightsBack: a real server that was on its way out when the proxy
// ended, and whose pod is ready, has weight 1 after the first write, and the virtual
// server is never without one of weight.
func TestRestartGivesWeightsBack(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	program(t, b, sync, f.self(), f.web(1, 2))
	apply(t, sync)
	id := ipvs.ID{Protocol: ipvs.TCP, Addr: netip.AddrPortFrom(at(f.cluster, 1), 80)}
	for _, e := range f.endpoints(2, 8080) {
		if err := b.options.Kernel.Servers.SetReal(id, ipvs.Real{Addr: e.Addr}); err != nil {
			t.Fatal(err)
		}
	}
	again := live(t, f.family)
	sync = dataplane.NewSync(again)
	program(t, again, sync, f.self(), f.web(1, 1)) // of the other nobody wants anything
	apply(t, sync)
	if got, want := reals(t, again, ipvs.TCP, at(f.cluster, 1), 80), []string{"10.244.1.1:8080 1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	nothingToDo(t, again, f.self(), f.web(1, 1))
}

// TestOneEndpoint: an endpoint that comes is one real server added, and one that goes
// is one that gets weight 0 and is removed; nothing else is touched.
func TestOneEndpoint(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	program(t, b, sync, f.self(), f.mix()...)
	k := b.options.Kernel
	web := func(endpoints int) *service.Service {
		s := f.web(100, endpoints)
		s.Ports[0].Endpoints = f.endpoints(endpoints, 9090)
		return s
	}
	count := func(endpoints int) (servers, sets int) {
		servers, sets = k.Servers.Writes, k.Sets.Writes
		program(t, b, sync, f.self(), web(endpoints))
		apply(t, sync)
		return k.Servers.Writes - servers, k.Sets.Writes - sets
	}
	count(2)
	// The fourth endpoint is on another node; the third is here and has an entry in
	// KUBE-LOOP-BACK.
	for _, change := range []struct{ endpoints, servers, sets int }{{3, 1, 1}, {4, 1, 0}, {3, 2, 0}, {2, 2, 1}} {
		if servers, sets := count(change.endpoints); servers != change.servers || sets != change.sets {
			t.Errorf("to %d endpoints: %d changes of servers and %d of sets, want %d and %d",
				change.endpoints, servers, sets, change.servers, change.sets)
		}
	}
	if got, want := reals(t, b, ipvs.TCP, at(f.cluster, 100), 80), []string{"10.244.1.1:9090 1", "10.244.2.2:9090 1"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// crash is a context that ends when it was asked a number of times.
type crash struct {
	context.Context
	left *int
}

func (c crash) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// crashing is a Backend whose writes end in the middle.
type crashing struct {
	*Backend
	left *int
}

func (c crashing) Apply(ctx context.Context, p dataplane.Plan) error {
	return c.Backend.Apply(crash{ctx, c.left}, p)
}

// TestCrash: wherever a write ends in the middle, the next start finds what is there
// to be ours and makes the rest of it, and when all Services are gone nothing is left.
func TestCrash(t *testing.T) {
	f := families[0]
	list := f.mix()
	for step, done := 0, false; !done; step += 2 {
		done = true // unless a write ends early; also when the kernel has no IPVS
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			inNamespace(t)
			b := live(t, f.family)
			left := step
			sync := dataplane.NewSync(crashing{b, &left})
			program(t, b, sync, f.self(), list...)
			_, err := sync.Apply(t.Context())
			done = err == nil
			again := live(t, f.family)
			sync = dataplane.NewSync(again)
			program(t, again, sync, f.self(), list[:len(list)/2]...)
			apply(t, sync)
			nothingToDo(t, again, f.self(), list[:len(list)/2]...)
			sync = dataplane.NewSync(again)
			program(t, again, sync, f.self())
			apply(t, sync)
			servers, err := again.options.Kernel.Servers.Servers()
			if err != nil || len(servers) > 0 {
				t.Errorf("left: %v, %v", servers, err)
			}
		})
	}
}

// TestOthersServers: virtual servers of somebody else stay as they are, also when
// they are on an address of this node, and in ranges that are excluded.
func TestOthersServers(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	b.options.Exclude = []netip.Prefix{netip.MustParsePrefix("10.96.0.200/29")}
	sync := dataplane.NewSync(b)
	program(t, b, sync, f.self(), f.mix()...)
	apply(t, sync)
	k := b.options.Kernel.Servers
	others := []ipvs.Server{
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.11:443")}, Scheduler: "wlc"},
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("192.0.2.99:30080")}, Scheduler: "wlc"},
		{ID: ipvs.ID{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort("10.96.0.201:80")}, Scheduler: "wlc"},
	}
	for _, s := range others {
		if err := errors.Join(k.AddServer(s), k.AddReal(s.ID, ipvs.Real{Addr: netip.MustParseAddrPort("192.0.2.100:443"), Weight: 7})); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range f.mix() {
		sync.Remove(s.Name.String())
	}
	if _, err := sync.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	left, err := k.Servers()
	if err != nil {
		t.Fatal(err)
	}
	// The second has the port of a NodePort, which tells it to be ours.
	if len(left) != 2 || !slices.Contains(left, others[0]) || !slices.Contains(left, others[2]) {
		t.Errorf("left: %+v", left)
	}
}

// TestManyEntries: 66,000 entries fit into a set, also into one that kube-proxy left,
// which has room for 65,536; a set that is full names the Service, and the others are
// programmed.
func TestManyEntries(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	before := b.sets[loopBack]
	before.MaxElements = 65536
	if err := b.options.Kernel.Sets.Create(before); err != nil {
		t.Fatal(err)
	}
	sync := dataplane.NewSync(b)
	crowd := func(number, size int) *service.Service {
		s := f.web(number, 0)
		for i := range size { // not ready: no real servers
			addr := netip.AddrFrom4([4]byte{10, 244, byte(number), byte(i >> 8)})
			s.Ports[0].Endpoints = append(s.Ports[0].Endpoints, service.Endpoint{Addr: netip.AddrPortFrom(addr, uint16(1000+i)), Node: "node1"})
		}
		return s
	}
	var list []*service.Service
	for n := range 66 {
		list = append(list, crowd(n+1, 1000))
	}
	program(t, b, sync, f.self(), list...)
	apply(t, sync)
	entries := 0
	if err := b.options.Kernel.Sets.Entries("KUBE-LOOP-BACK", func(ipset.Entry) { entries++ }); err != nil || entries != 66_000 {
		t.Errorf("%d entries, %v", entries, err)
	}
	nothingToDo(t, b, f.self(), list...)

	for _, s := range list {
		sync.Remove(s.Name.String())
	}
	apply(t, sync)
	b.sets[loopBack].MaxElements = 100
	program(t, b, sync, f.self(), f.web(1, 2), crowd(2, 1000), f.web(3, 2))
	if _, err := sync.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, err := sync.Reconcile(context.Background())
	if err != nil || len(r.Rejected) != 1 || r.Rejected[0].Owner != "default/web-2" || !errors.Is(r.Rejected[0].Err, ipset.ErrFull) {
		t.Fatalf("rejected: %+v, %v", r.Rejected, err)
	}
	for _, n := range []int{1, 3} {
		if got := reals(t, b, ipvs.TCP, at(f.cluster, n), 80); len(got) != 2 {
			t.Errorf("web-%d: %v", n, got)
		}
	}
}

// TestUnroutable: an endpoint that no route leads to is left out, and told once; the
// others serve.
func TestUnroutable(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	var told []string
	b.options.Trouble = func(err error) { told = append(told, err.Error()) }
	sync := dataplane.NewSync(b)
	bad := f.web(1, 3)
	bad.Ports[0].Endpoints[0].Addr = netip.MustParseAddrPort("255.255.255.255:80")
	program(t, b, sync, f.self(), bad, f.web(2, 2))
	for range 2 {
		if r, err := sync.Reconcile(context.Background()); err != nil || len(r.Rejected) > 0 {
			t.Fatalf("rejected: %+v, %v", r.Rejected, err)
		}
	}
	for _, n := range []int{1, 2} {
		if got := reals(t, b, ipvs.TCP, at(f.cluster, n), 80); len(got) != 2 {
			t.Errorf("web-%d: %v", n, got)
		}
	}
	if len(told) != 1 || !strings.Contains(told[0], "255.255.255.255:80 of tcp 10.96.0.1:80") {
		t.Errorf("told: %q", told)
	}
}

// drainConnected programs a Service beside others, connects to its only endpoint for as
// long as the test runs, and has the Service be as given afterwards.
func drainConnected(t *testing.T, b *Backend, sync *dataplane.Sync, f family, after *service.Service, others ...*service.Service) {
	t.Helper()
	listener, err := net.Listen("tcp", at(f.node, 11).String()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := f.web(1, 1)
	s.Ports[0].Endpoints[0].Addr = netip.AddrPortFrom(at(f.node, 11), 8080)
	program(t, b, sync, f.self(), append([]*service.Service{s}, others...)...)
	apply(t, sync)
	conn, err := net.DialTimeout("tcp", at(f.cluster, 1).String()+":80", 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	program(t, b, sync, f.self(), after)
	apply(t, sync)
}

// TestDrain: a real server with a connection gets weight 0 and stays, until its time
// is over.
func TestDrain(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	drainConnected(t, b, sync, f, f.web(1, 0), f.web(2, 2))
	for range 2 {
		if got, want := reals(t, b, ipvs.TCP, at(f.cluster, 1), 80), []string{"192.0.2.11:8080 0"}; !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
		if err := b.Drain(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	nothingToDo(t, b, f.self(), f.web(1, 0), f.web(2, 2))
	b.options.DrainWithin = time.Nanosecond
	if err := b.Drain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := reals(t, b, ipvs.TCP, at(f.cluster, 1), 80); len(got) > 0 {
		t.Errorf("still there: %v", got)
	}
}

// TestServiceGoesWhileItDrains: a Service that drops, having no endpoint here, and is
// deleted while its last real server still has a connection leaves no virtual server
// behind, which nobody would know again: its address and the entries of its sets are gone.
func TestServiceGoesWhileItDrains(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	away := f.web(1, 1)
	away.InternalPolicy = service.Local
	away.Ports[0].Endpoints[0].Node = "elsewhere"
	drainConnected(t, b, sync, f, away)
	if got, want := reals(t, b, ipvs.TCP, at(f.cluster, 1), 80), []string{"192.0.2.11:8080 0"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	sync.Remove(away.Name.String())
	apply(t, sync)
	left, err := b.options.Kernel.Servers.Servers()
	if err != nil || len(left) > 0 || len(b.draining)+len(b.retired) > 0 {
		t.Errorf("left: %v, %v waits, %v; %v", left, b.draining, b.retired, err)
	}
}

// TestAnswersUnderWay: a UDP real server that goes gets no new flows at once, and what
// it answers to those that it has is translated back for a moment; then it is removed.
func TestAnswersUnderWay(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	pod, err := net.ListenPacket("udp", at(f.node, 11).String()+":8080")
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	with, without := f.web(1, 1), f.web(1, 0)
	with.Ports[0].Endpoints[0].Addr = netip.AddrPortFrom(at(f.node, 11), 8080)
	for _, s := range []*service.Service{with, without} {
		s.Ports[0].Protocol = service.UDP
	}
	program(t, b, sync, f.self(), with)
	apply(t, sync)
	client, err := net.Dial("udp", at(f.cluster, 1).String()+":80")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	buf := make([]byte, 16)
	var from net.Addr
	for _, step := range []func() error{
		func() error { return client.SetDeadline(time.Now().Add(30 * time.Second)) },
		func() error { return pod.SetDeadline(time.Now().Add(30 * time.Second)) },
		func() error { _, err := client.Write([]byte("question")); return err },
		func() (err error) { _, from, err = pod.ReadFrom(buf); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	program(t, b, sync, f.self(), without)
	apply(t, sync)
	here := func() []string { return reals(t, b, ipvs.UDP, at(f.cluster, 1), 80) }
	b.mu.Lock() // so that it stays as it is
	if waited := time.Since(b.draining[realID{ipvs.ID{Protocol: ipvs.UDP, Addr: netip.AddrPortFrom(at(f.cluster, 1), 80)}, with.Ports[0].Endpoints[0].Addr}]); waited < underWay {
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
	nothingToDo(t, b, f.self(), without)
}

// TestPortReuse: a client that uses a port again, whose connection went to a real
// server of weight 0, gets another one at once, as the kernel is set up by us.
func TestPortReuse(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	sync := dataplane.NewSync(b)
	served := make(chan string, 16)
	s := f.web(1, 2)
	for i := range s.Ports[0].Endpoints {
		addr := netip.AddrPortFrom(at(f.node, 11), uint16(8081+i))
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
	program(t, b, sync, f.self(), s)
	apply(t, sync)
	call := func() string {
		dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: at(f.node, 11).AsSlice(), Port: 20001}}
		conn, err := dialer.Dial("tcp", at(f.cluster, 1).String()+":80")
		if err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).SetLinger(0) // so that the port is free at once
		conn.Close()
		return <-served
	}
	for range 4 {
		gone := call()
		s = f.web(1, 0)
		for _, e := range []uint16{8081, 8082} {
			if addr := netip.AddrPortFrom(at(f.node, 11), e); addr.String() != gone {
				s.Ports[0].Endpoints = append(s.Ports[0].Endpoints, service.Endpoint{Addr: addr, Ready: true, Serving: true, Node: "node1"})
			}
		}
		program(t, b, sync, f.self(), s)
		apply(t, sync)
		if now := call(); now == gone {
			t.Errorf("%s, which left, was given a new connection", gone)
		}
	}
}

// TestManyServices: 2,500 Services are programmed with at most 5 programs started, and
// the API server's is complete before the next begins.
func TestManyServices(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.family)
	log := countPrograms(t, b)
	sync := dataplane.NewSync(b)
	api := f.web(1, 2)
	list := []*service.Service{}
	for n := range 2499 {
		s := f.web(2, 2)
		s.Name.Name = fmt.Sprintf("svc-%d", n)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(1 + n>>8), byte(n)})}
		list = append(list, s)
	}
	program(t, b, sync, f.self(), append(list, api)...)
	start := time.Now()
	apply(t, sync)
	took := time.Since(start)
	servers, err := b.options.Kernel.Servers.Servers()
	if err != nil || len(servers) != 2500 {
		t.Errorf("%d virtual servers, %v", len(servers), err)
	}
	ran, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	programs := strings.Count(string(ran), "\n")
	if programs > 5 {
		t.Errorf("%d programs were started:\n%s", programs, ran)
	}
	t.Logf("2,500 Services: %v, programs started: %d, changes of servers: %d, of sets: %d",
		took.Round(time.Millisecond), programs, b.options.Kernel.Servers.Writes, b.options.Kernel.Sets.Writes)
}

// countPrograms has the programs that rules are written with note in a file that they
// ran.
func countPrograms(t *testing.T, b *Backend) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	for _, program := range []*string{&b.options.Kernel.Tool.SaveProgram, &b.options.Kernel.Tool.RestoreProgram} {
		shim := filepath.Join(dir, *program)
		text := fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>%s\nexec %s \"$@\"\n", *program, log, *program)
		if err := os.WriteFile(shim, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		*program = shim
	}
	return log
}

// TestFirst: cluster IPs come before others, and the lowest first, which is the API
// server's.
func TestFirst(t *testing.T) {
	b := New(Options{Family: service.IPv4})
	list := []serverChange{}
	for _, body := range []string{
		"198.51.100.1 tcp 80: rr | KUBE-LOAD-BALANCER | ", "10.96.0.10 udp 53: rr | KUBE-CLUSTER-IP | ",
		"10.0.0.1 tcp 80: rr | KUBE-EXTERNAL-IP | ", "10.96.0.1 tcp 443: rr | KUBE-CLUSTER-IP | 192.0.2.1:6443",
	} {
		now, err := b.parseTarget(body)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, serverChange{now: now})
	}
	sortServers(list)
	if first := nameOf(list[0].id()); first != "10.96.0.1 tcp 443" {
		t.Errorf("first is %s", first)
	}
	if third := nameOf(list[2].id()); third != "10.0.0.1 tcp 80" {
		t.Errorf("third is %s", third)
	}
}
