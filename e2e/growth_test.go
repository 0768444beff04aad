package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"portolan/lab"
)

// The Service that grows: its 200 endpoints are 50 ports of each of 4 pods.
const (
	grown        = 200
	growingPods  = 4
	firstGrowing = 20000 // port
)

// growingEndpoint is the pod and the port of one endpoint.
func growingEndpoint(i int) (lab.PodSpec, uint16) {
	pod := i % growingPods
	return lab.NumberedPod(fmt.Sprintf("grown-%d", pod), 1+pod%2, 60+pod), uint16(firstGrowing + i/growingPods)
}

const growingService = `---
apiVersion: v1
kind: Service
metadata: {name: growing, namespace: default}
spec:
  clusterIP: 10.96.3.20
  clusterIPs: [10.96.3.20, "fd00:96::314"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {name: p0, protocol: TCP, port: 80, targetPort: 8080}
`

// growingSlices are those of one endpoint: since endpoints differ in their ports,
// each has slices of its own.
func growingSlices(i int) []byte {
	var b bytes.Buffer
	pod, port := growingEndpoint(i)
	for family, kind := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: growing-%d-%d, namespace: default, labels: {kubernetes.io/service-name: growing}}
addressType: %s
ports: [{name: p0, protocol: TCP, port: %d}]
endpoints: [{addresses: [%q], nodeName: %s, conditions: {ready: true}}]
`, i, family, kind, port, pod.Addrs[family], pod.Node)
	}
	return b.Bytes()
}

// growingChains are the chains of the choice and, with an optional minus, of the
// endpoints from to before to.
func growingChains(minus string, from, to int) func(family int) (map[string]bool, error) {
	return func(family int) (map[string]bool, error) {
		chains := map[string]bool{"nat/KUBE-SVC-" + chainHash("growing", "p0", "tcp", ""): true}
		for i := from; i < to; i++ {
			pod, port := growingEndpoint(i)
			chains[minus+"nat/KUBE-SEP-"+chainHash("growing", "p0", "tcp", netip.AddrPortFrom(pod.Addrs[family], port).String())] = true
		}
		return chains, nil
	}
}

// TestGrowth: a Service grows from 1 endpoint to 200 one by one, and back to 1. Each
// endpoint costs its own chain and the one that chooses; no call fails meanwhile, and
// in the end all have equal shares.
func TestGrowth(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newChanger(t, b, changeScenario())
		var pods []string
		for i := range growingPods {
			pod, _ := growingEndpoint(i)
			for p := range grown / growingPods {
				pod.Ports = append(pod.Ports, uint16(firstGrowing+p))
			}
			if _, err := c.AddPod(pod); err != nil {
				t.Fatal(err)
			}
			pods = append(pods, pod.Name)
		}
		c.services = append([]byte(growingService), growingSlices(0)...)
		if _, err := c.drain(); err != nil {
			t.Fatal(err)
		}
		ended := c.callAll("answered "+strings.Join(pods, ","), call("pod:visitor", "tcp", "10.96.3.20:80"),
			call("client", "tcp", "[fd00:96::314]:80"), call("node1", "tcp", "10.96.3.20:80"))
		for n := 2; n <= grown; n++ {
			if err := c.grow(n-1, n, true); err != nil {
				t.Errorf("%s: %d endpoints: %v", b.Name(), n, err)
				break
			}
		}
		if err := c.evenShares(pods); err != nil {
			t.Errorf("%s: %v", b.Name(), err)
		}
		if err := c.grow(1, grown, false); err != nil {
			t.Errorf("%s: back to 1: %v", b.Name(), err)
		}
		if err := ended(); err != nil {
			t.Errorf("%s: %v", b.Name(), err)
		}
		c.count("changes", grown)
	})
}

// grow adds endpoints or takes them away, and waits until that is in force.
func (c *changer) grow(from, to int, add bool) error {
	files, minus := map[string][]byte{}, "-"
	for i := from; i < to; i++ {
		files[fmt.Sprintf("growing-%d.yaml", i)] = nothing
		if add {
			minus = ""
			files[fmt.Sprintf("growing-%d.yaml", i)] = growingSlices(i)
		}
	}
	c.apply(files)
	if c.recorded() {
		return c.writtenExactly(growingChains(minus, from, to))
	}
	c.put()
	return c.shown()
}

// callAll makes probes call until the returned function is called, which tells what
// went wrong.
func (c *changer) callAll(want string, probes ...*probe) func() error {
	ended := make(chan struct{})
	var calling sync.WaitGroup
	for _, p := range probes {
		p.host, p.ports, p.pods = c.host(p.from), &c.ports, c.pods()
		p.new, _ = outcomes(want)
		p.inForce()
		calling.Go(func() { p.run(ended) })
	}
	return func() error {
		close(ended)
		calling.Wait()
		var errs []error
		for _, p := range probes {
			c.tries += p.calls
			if p.calls < callsInForce {
				errs = append(errs, fmt.Errorf("%v: %d calls only", p, p.calls))
			}
			errs = append(errs, p.err)
		}
		return errors.Join(errs...)
	}
}

// evenShares calls the grown Service and compares the shares of its pods, each of
// which is a quarter of the endpoints. By chance that fails once in 3,000 times.
func (c *changer) evenShares(pods []string) error {
	const connections = 1200
	answered := map[string]int{}
	for range connections {
		o := c.try(c.host("pod:visitor"), lab.Call{Proto: "tcp", To: netip.MustParseAddrPort("10.96.3.20:80"), Timeout: patience})
		answered[o.Pod]++
	}
	share := 1 / float64(growingPods)
	for _, pod := range pods {
		if off := math.Abs(float64(answered[pod]) - connections*share); off > 4*math.Sqrt(connections*share*(1-share)) {
			return fmt.Errorf("%s is %.0f off a quarter of %d: %v", pod, off, connections, answered)
		}
	}
	return nil
}
