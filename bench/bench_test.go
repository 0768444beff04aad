package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"portolan/bench/figures"
)

// The mix has the shares that it promises, at every thousand.
func TestMix(t *testing.T) {
	for _, n := range []int{1000, 5000} {
		kinds, counts, ips, pods := map[string]int{}, map[int]int{}, map[string]bool{}, map[string]bool{}
		for _, it := range workload(figures.Workload{Services: n}) {
			s := it.service.Spec
			name := string(s.Type)
			switch {
			case s.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal:
				name = "local"
			case len(s.LoadBalancerSourceRanges) > 0:
				name = "ranges"
			case s.SessionAffinity == v1.ServiceAffinityClientIP:
				name = "affinity"
			case s.Ports[0].Protocol == v1.ProtocolUDP:
				name = "udp"
			}
			kinds[name]++
			ips[s.ClusterIP] = true
			count := 0
			for _, slice := range it.slices {
				count += len(slice.Endpoints)
				if len(slice.Endpoints) == 0 || len(slice.Endpoints) > maxSlice {
					t.Errorf("%s has %d endpoints", slice.Name, len(slice.Endpoints))
				}
				for _, e := range slice.Endpoints {
					pods[e.Addresses[0]] = true
				}
			}
			counts[count]++
		}
		for name, percent := range map[string]int{"NodePort": 20, "local": 10, "affinity": 5, "ranges": 5, "udp": 5, "ClusterIP": 55} {
			if kinds[name] != n*percent/100 {
				t.Errorf("%d Services: %d are %s, want %d %%", n, kinds[name], name, percent)
			}
		}
		total := 0
		for count, perMille := range map[int]int{0: 50, 1: 400, 3: 300, 10: 200, 100: 49, 1000: 1} {
			total += count * counts[count]
			if counts[count] != n*perMille/1000 {
				t.Errorf("%d Services: %d have %d endpoints, want %d of 1,000", n, counts[count], count, perMille)
			}
		}
		if len(ips) != n || len(pods) != total {
			t.Errorf("%d Services: %d ClusterIPs, %d addresses of %d endpoints", n, len(ips), len(pods), total)
		}
	}
}

// What is changed and what is asked must answer, in every workload that can be
// asked for.
func TestWhatIsAskedAnswers(t *testing.T) {
	for _, perService := range []int{0, 1, 10} { // 0: the mix
		for _, n := range []int{20, 1000, 1001} {
			items := workload(figures.Workload{Services: n, Endpoints: perService})
			at := changed(items)
			if it := items[at]; !answers(it) || len(it.slices) != 1 || it.service.Spec.Type != v1.ServiceTypeClusterIP {
				t.Errorf("%d Services x %d: number %d is changed: %+v", n, perService, at, it.service.Spec)
			}
			asked := sample(items, sampled)
			seen := map[string]bool{}
			for _, to := range asked {
				seen[to.String()] = true
			}
			if len(seen) != len(asked) || len(asked) < min(n/3, sampled) {
				t.Errorf("%d Services x %d: asked are %v", n, perService, asked)
			}
		}
	}
}

func TestSyncsOfALog(t *testing.T) {
	log := `time=T level=INFO msg=synced family=IPv4 services=3 full=true created=9 replaced=0 deleted=0 took=1.5s
time=T level=INFO msg="connections that lead nowhere removed" family=IPv4 removed=2 read=2 full=true took=38ms
time=T level=INFO msg=synced family=IPv6 services=3 full=true created=9 replaced=0 deleted=0 took=7s
time=T level=ERROR msg="sync failed, will be tried again" family=IPv4 services=3 full=true took=9s failures=1
time=T level=INFO msg=synced family=IPv4 services=3 full=false created=1 replaced=0 deleted=0 took=2ms
time=T level=DEBUG msg="nothing to write" family=IPv4 services=3 full=false took=4ms
`
	want := syncs{full: 1, fullTime: 1500 * time.Millisecond, partial: 2, partialTime: 6 * time.Millisecond}
	if got := parseSyncs(log); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMetrics(t *testing.T) {
	m, err := parseMetrics(strings.NewReader("# HELP a b 1\na{x=\"y z\"} 2.5\nb 1e+03\n"))
	if err != nil || len(m) != 2 || m[`a{x="y z"}`] != 2.5 || m["b"] != 1000 {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestCountWrites(t *testing.T) {
	calls := `iptables -w 5 -N KUBE-SERVICES -t nat
iptables -w 5 -C INPUT -t filter -j X
iptables -S KUBE-PROXY-CANARY -t mangle
iptables-restore -w 5 --noflush --counters
ip6tables-restore -w 5 -T nat --noflush --counters
iptables-restore --test
`
	if got := countWrites(calls); got != 3 {
		t.Errorf("%d writes, want 3", got)
	}
}

func TestProcess(t *testing.T) {
	if got, err := childrenTime([]byte("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 300 40 20 0")); err != nil || got != 3400*time.Millisecond {
		t.Errorf("children: %v, %v, want 3.4 s", got, err)
	}
	before, err := readCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for sum := 0; ; sum++ { // until the clock moves
		after, err := readCPU(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if after.since(before).self > 0 {
			break
		}
	}
	if peak, now := peakMemory(os.Getpid()), residentMemory(os.Getpid()); now < 1<<20 || peak < now {
		t.Errorf("this process has %d bytes, %d at most", now, peak)
	}
	if got := kibibytes("A: 1 kB\nVmHWM:\t   20 kB\n", "VmHWM"); got != 20<<10 {
		t.Errorf("20 KiB are %d bytes", got)
	}
	if idle, err := busyTime(); idle <= 0 || err != nil {
		t.Errorf("this machine has worked for %v, %v", idle, err)
	}
}

// What a storm took away is given back, however long it was.
func TestPutBack(t *testing.T) {
	const services = 7
	for sent := range 4 * services {
		unready := map[int]bool{}
		flip := func(n int) { unready[n%services] = n/services%2 == 0 }
		for n := range sent {
			flip(n)
		}
		first, end := takenAway(sent, services)
		for n := first; n < end; n++ {
			flip(services + n)
		}
		for i, is := range unready {
			if is {
				t.Errorf("after %d changes, Service %d stays without an endpoint", sent, i)
			}
		}
	}
}

func TestAbreast(t *testing.T) {
	var done atomic.Int32
	of := func(n, bad int) iter.Seq[task] {
		return func(yield func(task) bool) {
			for i := range n {
				if !yield(func(context.Context) error {
					if done.Add(1); i == bad {
						return errors.New("bad")
					}
					return nil
				}) {
					return
				}
			}
		}
	}
	if err := abreast(t.Context(), of(100, -1)); err != nil || done.Load() != 100 {
		t.Errorf("%d tasks done, %v", done.Load(), err)
	}
	if err := abreast(t.Context(), of(1<<30, 50)); err == nil {
		t.Error("a task failed, and nobody heard of it")
	}
}

func TestParse(t *testing.T) {
	o, err := parse([]string{"-workloads", "1000x10, 5000mix", "-modes", "all", "-peer", "none"})
	if err != nil || len(o.workloads) != 2 || len(o.products(o.workloads[0])) != len(figures.Modes) {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range [][]string{{"-workloads", "10"}, {"-modes", "ipvs"}, {"-peer", "some"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// kube-proxy runs once in a mode, where it can.
func TestProducts(t *testing.T) {
	o := options{modes: figures.Modes, peer: "limited"}
	count := func(w figures.Workload) (n int) {
		for _, p := range o.products(w) {
			if p.name == figures.KubeProxy {
				n++
			}
		}
		return n
	}
	for w, want := range map[figures.Workload]int{{Services: 1000, Endpoints: 10}: 3, {Services: 10000}: 2, {Services: 45000, Endpoints: 1}: 0, {Services: 5006, Endpoints: 50}: 0} {
		if got := count(w); got != want {
			t.Errorf("%v: %d runs of kube-proxy, want %d", w, got, want)
		}
	}
}
