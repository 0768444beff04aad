package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portolan/lab"
)

// TestDroppedPackets: what the kernel does not let through is counted by Service and
// reason, each packet once, and by the next process from its start on.
func TestDroppedPackets(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode == "ipvs" {
			t.Skip("ipvs mode does not count what it drops")
		}
		s := changeScenario()
		entry := func(m manifest, n int) manifest {
			m.port, m.nodePort = 80, 31800+10*n
			m.cluster, m.external = pair("10.96.3.%d", "fd00:96::3%02x", 60+n), pair("198.51.100.%d", "2001:db8:198::%x", 230+n)
			return m
		}
		s.manifests = append(s.manifests, entry(manifest{name: "empty", kind: "lb", policy: "Cluster"}, 0).yaml()...)
		s.manifests = append(s.manifests, entry(manifest{name: "elsewhere", kind: "lb", policy: "Local"}, 1).with("x").yaml()...)
		s.manifests = append(s.manifests, entry(manifest{name: "ranged", kind: "lb", policy: "Cluster", ranges: []string{"203.0.113.0/24", "2001:db8:113::/48"}}, 2).with("a").yaml()...)
		c := newCluster(t, b, s)
		c.tryDropped(t, map[string]int{"198.51.100.249:80 tcp": 2,
			"10.96.3.60:80 tcp": 3, "198.51.100.230:80 tcp": 1, "192.0.2.11:31800 tcp": 2, "192.0.2.11:31801 udp": 1, "[fd00:96::33c]:80 udp": 1, "[2001:db8::11]:31801 udp": 1,
			"198.51.100.231:80 udp": 2, "192.0.2.11:31811 udp": 1, "[2001:db8:198::e7]:80 udp": 1,
			"198.51.100.232:80 udp": 4, "[2001:db8:198::e8]:80 udp": 1})
		c.wantDropped(t, map[string]int{"empty IPv4 no_endpoints": 7, "empty IPv6 no_endpoints": 2,
			"elsewhere IPv4 no_local_endpoints": 3, "elsewhere IPv6 no_local_endpoints": 1, "ranged IPv4 source_range": 4, "ranged IPv6 source_range": 1})
		c.relaunch(t, "node1")
		c.wantDropped(t, nil)
		c.tryDropped(t, map[string]int{"10.96.3.60:80 tcp": 1, "198.51.100.232:80 udp": 1})
		c.wantDropped(t, map[string]int{"empty IPv4 no_endpoints": 1, "ranged IPv4 source_range": 1})
		c.count("metrics", 14)
	})
}

// tryDropped calls addresses from outside, each so many times. A datagram is one packet,
// and so is the start of a TCP connection over IPv4 that is refused at once; over IPv6
// Linux may try twice.
func (c *cluster) tryDropped(t *testing.T, calls map[string]int) {
	t.Helper()
	for to, n := range calls {
		address, proto, _ := strings.Cut(to, " ")
		for range n {
			c.tries++
			timeout := patience
			if proto == "udp" {
				timeout = 200 * time.Millisecond // nobody answers
			}
			c.Client.Try(lab.Call{Proto: proto, To: netip.MustParseAddrPort(address), Timeout: timeout})
		}
	}
}

// wantDropped compares what the proxy of node1 tells of Services.
func (c *cluster) wantDropped(t *testing.T, want map[string]int) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: c.Node("node1").DialContext, DisableKeepAlives: true}, Timeout: patience}
	answer, err := client.Get("http://127.0.0.1:10249/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(string(text)) {
		labels, is := strings.CutPrefix(line, "portolan_dropped_packets_total{")
		if !is || strings.Contains(labels, `service=""`) {
			continue
		}
		var family, namespace, reason, name string
		var n int
		labels = strings.NewReplacer(`",`, " ", `"}`, "", `="`, " ").Replace(labels)
		if _, err := fmt.Sscanf(labels, "ip_family %s namespace %s reason %s service %s %d", &family, &namespace, &reason, &name, &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got[name+" "+family+" "+reason] = n
	}
	if fmt.Sprint(got) != fmt.Sprint(want) && len(got)+len(want) > 0 {
		t.Errorf("dropped: %v, want %v", got, want)
	}
}
