package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan/kernel/conntrack"
	"portolan/lab"
)

// TestTCPFlows: a connection that began before its Service was there comes about
// when it is, and one whose endpoint vanished is reset where that was asked for,
// and else left alone.
func TestTCPFlows(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		for _, reset := range []bool{true, false} {
			if !reset && b.mode != "nftables" {
				continue // one mode shows what is not done
			}
			t.Run(fmt.Sprintf("%s/reset=%v", b.Name(), reset), func(t *testing.T) {
				t.Parallel()
				c := newCluster(t, b, scenario{name: "tcpflows", topology: lab.Numbered(1, 2, 8080), manifests: tcpService("10.96.0.41", "a", ""),
					args: []string{fmt.Sprintf("--tcp-reset=%v", reset), "--iptables-min-sync-period", "10ms"}})
				c.begunTooEarly(t)
				c.endpointVanishes(t, reset)
				c.count("conntrack", 2)
			})
		}
	}
}

const tcpVIP = "10.96.0.40"

// begunTooEarly connects to an address at which nobody answers yet, and hears nobody
// say so.
func (c *cluster) begunTooEarly(t *testing.T) {
	t.Helper()
	if out, err := c.Client.Command(t.Context(), lab.HostVariant, "iptables", "-w", "-I", "INPUT", "-p", "icmp", "-j", "DROP").CombinedOutput(); err != nil {
		t.Fatalf("silence: %v: %s", err, out)
	}
	answered := make(chan lab.Outcome)
	go func() {
		answered <- c.Client.Dial("tcp", netip.MustParseAddrPort(tcpVIP+":80"), 30*time.Second)
	}()
	if err := eventually(func() error {
		if len(c.entriesTo(t, tcpVIP)) == 0 {
			return errors.New("the connection that begins too early is not tracked")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.apply(map[string][]byte{"services.yaml": tcpService(tcpVIP, "a", "")})
	c.tries++
	if o := <-answered; o.Verdict != lab.Answered || o.Pod != "pod-1-1" {
		t.Errorf("a connection from before the Service: %v", o)
	}
}

// endpointVanishes has an endpoint terminate, and then vanish under an open
// connection.
func (c *cluster) endpointVanishes(t *testing.T, reset bool) {
	t.Helper()
	conn, err := c.Client.Open(t.Context(), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort(tcpVIP + ":80"), Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if o := conn.Ask(patience); o.Pod != "pod-1-1" {
		t.Fatalf("the connection: %v", o)
	}
	source := netip.MustParseAddrPort(conn.LocalAddr().String())
	before := c.entriesTo(t, tcpVIP)[source]
	c.apply(map[string][]byte{"services.yaml": tcpService(tcpVIP, "ab", "a")})
	if err := c.settles(tcpVIP+":80", "answered pod-1-2"); err != nil {
		t.Fatal(err)
	}
	if o := conn.Ask(patience); o.Pod != "pod-1-1" {
		t.Errorf("while its endpoint terminates: %v", o)
	}
	if err := c.Pod("pod-1-1").Kill(); err != nil {
		t.Fatal(err)
	}
	c.apply(map[string][]byte{"services.yaml": tcpService(tcpVIP, "b", "")})
	start := time.Now()
	if !reset {
		if o := conn.Ask(2 * time.Second); o.Verdict != lab.TimedOut {
			t.Errorf("a connection that was to be left alone: %v", o)
		}
		if after := c.entriesTo(t, tcpVIP)[source]; after.ID != before.ID || before.ID == 0 {
			t.Errorf("its entry was %v (%d), now it is %v (%d)", before, before.ID, after, after.ID)
		}
		return
	}
	if o := conn.Ask(tolerated); !errors.Is(o.Err, syscall.ECONNRESET) {
		t.Errorf("a connection to an endpoint that is gone: %v", o)
	}
	t.Logf("reset after %v", time.Since(start))
}

// entriesTo lists the connections to an address that node1 tracks, by their source.
func (c *cluster) entriesTo(t *testing.T, addr string) map[netip.AddrPort]conntrack.Flow {
	t.Helper()
	out := c.entries(t, "node1")
	for source, f := range out {
		if f.Orig.Dst.Addr() != netip.MustParseAddr(addr) {
			delete(out, source)
		}
	}
	return out
}

// tcpService has the endpoints a and b, of which some terminate.
func tcpService(ip, endpoints, terminating string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: v1
kind: Service
metadata: {name: tcp, namespace: default}
spec:
  clusterIP: %s
  clusterIPs: [%[1]s]
  ipFamilies: [IPv4]
  ports:
  - {protocol: TCP, port: 80, targetPort: 8080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tcp-4, namespace: default, labels: {kubernetes.io/service-name: tcp}}
addressType: IPv4
ports:
- {name: "", protocol: TCP, port: 8080}
endpoints:
`, ip)
	for i, e := range []string{"a", "b"} {
		if strings.Contains(endpoints, e) {
			ends := strings.Contains(terminating, e)
			fmt.Fprintf(&b, "- {addresses: [10.244.1.%d], conditions: {ready: %v, serving: %v, terminating: %v}}\n", 11+i, !ends, !ends, ends)
		}
	}
	return []byte(b.String())
}
