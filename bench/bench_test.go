package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The mix has the shares that it promises, at every thousand.
func TestMix(t *testing.T) {
	for _, n := range []int{1000, 5000} {
		kinds, counts, ips, pods := map[string]int{}, map[int]int{}, map[string]bool{}, map[string]bool{}
		for _, it := range workload(n, 10, true) {
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
	for _, mix := range []bool{false, true} {
		for _, n := range []int{20, 1000, 1001} {
			items := workload(n, 10, mix)
			at := changed(items)
			if it := items[at]; !answers(it) || len(it.slices) != 1 || it.service.Spec.Type != v1.ServiceTypeClusterIP {
				t.Errorf("%d Services, mix %v: number %d is changed: %+v", n, mix, at, it.service.Spec)
			}
			asked := sample(items, sampled)
			seen := map[string]bool{}
			for _, to := range asked {
				seen[to.String()] = true
			}
			if len(seen) != len(asked) || len(asked) < min(n/3, sampled) {
				t.Errorf("%d Services, mix %v: asked are %v", n, mix, asked)
			}
		}
	}
}

func TestSyncsOfALog(t *testing.T) {
	log := `time=T level=INFO msg=synced family=IPv4 services=3 full=true created=9 replaced=0 deleted=0 took=1.5s
time=T level=INFO msg=synced family=IPv6 services=3 full=true created=9 replaced=0 deleted=0 took=7s
time=T level=ERROR msg="sync failed, will be tried again" family=IPv4 full=true took=9s failures=1
time=T level=INFO msg=synced family=IPv4 services=3 full=false created=1 replaced=0 deleted=0 took=2ms
time=T level=DEBUG msg="nothing to write" family=IPv4 full=false took=4ms
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
	if got := peakMemory(os.Getpid()); got < 1<<20 {
		t.Errorf("this process's peak is %d bytes", got)
	}
}

func TestTable(t *testing.T) {
	r := results{}
	r.add(product{true, nftables}, sampleSet{spaced: {100, 300}, idleWrites: {4}})
	r.add(product{true, nftables}, sampleSet{spaced: {200}})
	r.add(product{false, nftables}, sampleSet{spaced: {10}, firstSync: {0.36}, idleWrites: {0}})
	var out bytes.Buffer
	printTable(&out, size{5000, 10, false}, []mode{nftables, iptNFT}, r)
	for _, want := range []string{
		"### 5000 Services x 10 endpoints, plain",
		"| nftables | change to traffic, spaced | ms | 200 (100-300) | 10.0 | 20.0x | 20x |",
		"| nftables | first full sync | s | 4.30 (3.60-5.00), recorded | 0.360 | 11.9x | 10x |",
		"| nftables | idle: kernel writes | writes | 4.00 | 0 |  | 0 |",
		"| iptables-nft | first full sync | s | 590, recorded, gave up | - |  |  |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	printTable(&out, size{5000, 10, true}, []mode{iptNFT}, r)
	if strings.Contains(out.String(), "recorded") {
		t.Errorf("plain figures stand in for the mix:\n%s", out.String())
	}
}
