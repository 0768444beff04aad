package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portolan/dataplane"
	"portolan/kernel/ipset"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// TestManyEntries: 66,000 entries fit into a set, also into one that kube-proxy left,
// which has room for 65,536; a set that is full names the Service, and the others are
// programmed.
func TestManyEntries(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	before := b.sets[loopBack]
	before.MaxElements = 65536
	if err := b.options.Kernel.Sets.Create(before); err != nil {
		t.Fatal(err)
	}
	sync := dataplane.NewSync(b)
	crowd := func(number, size int) *service.Service {
		s := f.Web(number, 0)
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
	program(t, b, sync, self(f), list...)
	apply(t, sync)
	entries := 0
	if err := b.options.Kernel.Sets.Entries("KUBE-LOOP-BACK", func(ipset.Entry) { entries++ }); err != nil || entries != 66_000 {
		t.Errorf("%d entries, %v", entries, err)
	}
	nothingToDo(t, b, self(f), list...)

	for _, s := range list {
		sync.Remove(s.Name.String())
	}
	apply(t, sync)
	b.sets[loopBack].MaxElements = 100
	program(t, b, sync, self(f), f.Web(1, 2), crowd(2, 1000), f.Web(3, 2))
	if _, err := sync.Reconcile(context.Background()); err != nil {
		t.Fatal(err)
	}
	r, err := sync.Reconcile(context.Background())
	if err != nil || len(r.Rejected) != 1 || r.Rejected[0].Owner != "default/web-2" || !errors.Is(r.Rejected[0].Err, ipset.ErrFull) {
		t.Fatalf("rejected: %+v, %v", r.Rejected, err)
	}
	for _, n := range []int{1, 3} {
		if got := reals(t, b, ipvs.TCP, at(f.Cluster, n), 80); len(got) != 2 {
			t.Errorf("web-%d: %v", n, got)
		}
	}
}

// TestManyServices: 2,500 Services are programmed with at most 5 programs started, and
// the API server's is complete before the next begins.
func TestManyServices(t *testing.T) {
	f := families[0]
	inNamespace(t)
	b := live(t, f.Family)
	log := countPrograms(t, b)
	sync := dataplane.NewSync(b)
	api := f.Web(1, 2)
	list := []*service.Service{}
	for n := range 2499 {
		s := f.Web(2, 2)
		s.Name.Name = fmt.Sprintf("svc-%d", n)
		s.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 96, byte(1 + n>>8), byte(n)})}
		list = append(list, s)
	}
	program(t, b, sync, self(f), append(list, api)...)
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
