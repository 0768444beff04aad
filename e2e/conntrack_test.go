package e2e

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/kernel/conntrack"
	"portolan/lab"
)

// transitions are what happens behind a UDP Service. A phase lists its endpoints
// "a" and "b", in capitals those that are not ready; "-" is no Service at all.
var transitions = []struct {
	name   string
	phases [3]string
	right  [3]string // the answer in each phase
}{
	{"0 to 1", [3]string{"", "", "a"}, [3]string{"refused", "refused", "a"}},
	{"1 to 0", [3]string{"a", "a", ""}, [3]string{"a", "a", "refused"}},
	{"replace", [3]string{"a", "a", "b"}, [3]string{"a", "a", "b"}},
	{"delete Service", [3]string{"a", "a", "-"}, [3]string{"a", "a", "gone"}},
	{"ready to not ready", [3]string{"aB", "aB", "Ab"}, [3]string{"a", "a", "b"}},
	{"re-created", [3]string{"a", "-", "b"}, [3]string{"a", "gone", "b"}},
	{"unchanged", [3]string{"ab", "ab", "ab"}, [3]string{"same", "same", "same"}},
}

// within is what an operator is promised; a machine that does other things, too, is
// allowed more before the test fails.
const (
	within    = time.Second
	tolerated = 10 * time.Second
)

// TestConntrack is the matrix of UDP clients that keep their source port: on every
// kind of address and in both families, while what is behind the address changes.
// Each goes to where it belongs now, or is refused; a flow to a Service that did not
// change is not touched, though its neighbours change all the time.
func TestConntrack(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		s := scenario{name: "conntrack", topology: lab.Numbered(1, 2, 53), manifests: udpPhase(0),
			args: often("10ms")}
		c := newCluster(t, b, s)
		var calls []*udpCall
		for i, tr := range transitions {
			for _, to := range udpAddresses(i) {
				conn, err := c.Client.Open(t.Context(), lab.Call{Proto: "udp", To: to})
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				calls = append(calls, &udpCall{name: fmt.Sprintf("%s, %v", tr.name, to), conn: conn, right: tr.right})
			}
		}
		slowest := time.Duration(0)
		for phase := range 3 {
			c.apply(map[string][]byte{"services.yaml": udpPhase(phase)})
			slowest = max(slowest, c.askAll(calls, phase))
		}
		entries := c.entries(t, "node1")
		for i := range 20 {
			c.apply(map[string][]byte{"services.yaml": udpPhase(1 + i%2)})
			slowest = max(slowest, c.askAll(calls, 1+i%2))
		}
		c.untouched(t, calls, entries)
		if slowest > within {
			t.Logf("the slowest client needed %v, more than %v", slowest, within)
		}
		c.count("conntrack", len(calls))
	})
}

// udpCall is a client that keeps its source port.
type udpCall struct {
	name  string
	conn  *lab.Conn
	right [3]string
	first string // who answered first
}

// askAll has all clients ask until each is answered as is right in a phase, three
// times in a row, and returns how long the slowest took to get there.
func (c *cluster) askAll(calls []*udpCall, phase int) time.Duration {
	took := make([]time.Duration, len(calls))
	errs := make([]error, len(calls))
	start := time.Now()
	var asking sync.WaitGroup
	for i, call := range calls {
		asking.Go(func() { took[i], errs[i] = call.becomes(call.right[phase], start) })
	}
	asking.Wait()
	for i, err := range errs {
		if err != nil {
			c.t.Fatalf("%s, phase %d: %v", calls[i].name, phase, err)
		}
	}
	c.tries += 3 * len(calls)
	return slices.Max(took)
}

func (u *udpCall) becomes(want string, start time.Time) (time.Duration, error) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	reached := time.Duration(0)
	for inRow := 0; inRow < 3; {
		asked := time.Since(start)
		o := u.conn.Ask(silence)
		switch {
		case !u.isRight(o, want):
			inRow = 0
			if asked > tolerated {
				return 0, fmt.Errorf("%v after %v, not %s", o, asked, want)
			}
			if want == "same" && o.Verdict != lab.TimedOut { // silence may be a slow answer: entries tell what untouched means
				return 0, fmt.Errorf("%v, not %s", o, u.first)
			}
		case inRow == 0:
			reached = asked
			fallthrough
		default:
			inRow++
		}
		<-pace.C
	}
	return reached, nil
}

// isRight tells whether an outcome is what a phase wants; where a Service is gone,
// it only matters that nobody answers.
func (u *udpCall) isRight(o lab.Outcome, want string) bool {
	switch want {
	case "gone":
		return o.Verdict != lab.Answered && o.Verdict != lab.Failed
	case "refused":
		return o.Verdict == lab.Refused
	case "same":
		if u.first == "" && o.Verdict == lab.Answered {
			u.first = o.Pod
		}
		return o.Verdict == lab.Answered && o.Pod == u.first
	}
	return o.Verdict == lab.Answered && o.Pod == map[string]string{"a": "pod-1-1", "b": "pod-1-2"}[want]
}

// entries lists the connections that a node tracks, by their source.
func (c *cluster) entries(t *testing.T, node string) map[netip.AddrPort]conntrack.Flow {
	t.Helper()
	out := map[netip.AddrPort]conntrack.Flow{}
	err := c.Node(node).Do(func() error {
		table, err := conntrack.Open()
		if err != nil {
			return err
		}
		defer table.Close()
		for _, ipv6 := range []bool{false, true} {
			for flow, err := range table.Flows(t.Context(), conntrack.Filter{IPv6: ipv6}) {
				if err != nil {
					return err
				}
				out[flow.Orig.Src] = flow
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// untouched wants the entries of the Service that did not change to be the very same.
func (c *cluster) untouched(t *testing.T, calls []*udpCall, before map[netip.AddrPort]conntrack.Flow) {
	t.Helper()
	after := c.entries(t, "node1")
	for _, call := range calls {
		if call.first == "" {
			continue
		}
		source := netip.MustParseAddrPort(call.conn.LocalAddr().String())
		was, is := before[source], after[source]
		if was.ID == 0 || was.ID != is.ID || was.Reply != is.Reply {
			t.Errorf("%s: the entry was %v (%d), now it is %v (%d)", call.name, was, was.ID, is, is.ID)
		}
	}
}

// udpAddresses are what Service number i answers on: the ClusterIPs, a load
// balancer's, external ones, and the NodePort.
func udpAddresses(i int) (out []netip.AddrPort) {
	for _, text := range []string{"10.96.0.%d:53", "[fd00:96::%d]:53", "198.51.100.%d:53", "[2001:db8:198::%d]:53",
		"203.0.113.%d:53", "[2001:db8:203::%d]:53", "192.0.2.11:300%d", "[2001:db8::11]:300%d"} {
		out = append(out, netip.MustParseAddrPort(fmt.Sprintf(text, 10+i)))
	}
	return out
}

// udpPhase are the manifests of all Services in a phase.
func udpPhase(phase int) []byte {
	var b strings.Builder
	for i, tr := range transitions {
		if endpoints := tr.phases[phase]; endpoints != "-" {
			fmt.Fprintf(&b, udpService, i, 10+i)
			udpSlices(&b, i, endpoints)
		}
	}
	return []byte(b.String())
}

const udpService = `---
apiVersion: v1
kind: Service
metadata: {name: udp-%[1]d, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.%[2]d
  clusterIPs: [10.96.0.%[2]d, "fd00:96::%[2]d"]
  externalIPs: [203.0.113.%[2]d, "2001:db8:203::%[2]d"]
  ipFamilies: [IPv4, IPv6]
  ports:
  - {protocol: UDP, port: 53, targetPort: 53, nodePort: 300%[2]d}
status: {loadBalancer: {ingress: [{ip: 198.51.100.%[2]d}, {ip: "2001:db8:198::%[2]d"}]}}
`

func udpSlices(b *strings.Builder, i int, endpoints string) {
	for _, family := range []struct{ name, a, b string }{
		{"IPv4", "10.244.1.11", "10.244.1.12"}, {"IPv6", "fd00:244:1::11", "fd00:244:1::12"},
	} {
		fmt.Fprintf(b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: udp-%[1]d-%[3]s, namespace: default, labels: {kubernetes.io/service-name: udp-%[1]d}}
addressType: %[2]s
ports:
- {name: "", protocol: UDP, port: 53}
endpoints:
`, i, family.name, strings.ToLower(family.name))
		for _, e := range endpoints {
			addr := family.a
			if strings.EqualFold(string(e), "b") {
				addr = family.b
			}
			ready := e >= 'a'
			fmt.Fprintf(b, "- {addresses: [\"%s\"], conditions: {ready: %v, serving: %v}}\n", addr, ready, ready)
		}
		if endpoints == "" {
			fmt.Fprintln(b, "  []")
		}
	}
}
