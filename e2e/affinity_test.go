package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portolan/lab"
)

// affinityTimeout is timeoutSeconds of the Service "sticky" in the base scenario.
const affinityTimeout = 2 * time.Second

// stickyAt is where a client calls "sticky" in its family.
func stickyAt(client netip.Addr) netip.AddrPort {
	if client.Is4() {
		return netip.MustParseAddrPort("10.96.0.11:80")
	}
	return netip.MustParseAddrPort("[fd00:96::11]:80")
}

// ofFamily are the addresses of one family.
func ofFamily(v4 bool, all []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return a.Is4() != v4 })
}

// TestAffinity: an endpoint is kept while calls come more often than the time-out,
// also for longer than it: each call starts it anew. After a silence longer than
// the time-out the choice is free again.
func TestAffinity(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		c := newCluster(t, b, baseScenario(t))
		if err := c.sticks(c.Client.Addrs); err != nil {
			t.Error(err)
		}
		if b.mode == "ipvs" { // see docs/modes.md
			t.Log("how long a choice is kept is not tried: IPVS keeps it while it remembers any connection of the client, minutes after its end")
		} else if err := c.expires(c.Client.Addrs); err != nil {
			t.Error(err)
		}
		c.count("affinity", len(c.Client.Addrs))
	})
}

// sticks calls from every address again and again for more than two time-outs.
// Forgotten affinity is a new choice of three, so with five callers it cannot hide.
// A pause longer than the time-out, on a machine that has no time for us, proves
// nothing: then it begins again. Each family has five callers.
func (c *cluster) sticks(clients []netip.Addr) error {
	pace := time.NewTicker(affinityTimeout / 10)
	defer pace.Stop()
	type choice struct {
		pod   string
		asked time.Time // before the call
	}
	choices := map[netip.Addr]choice{}
	began := time.Now()
	for time.Since(began) < affinityTimeout*5/2 {
		for _, from := range clients {
			now := choice{asked: time.Now()}
			o := c.try(c.Client, lab.Call{Proto: "tcp", From: from, To: stickyAt(from), Timeout: patience})
			if o.Verdict != lab.Answered {
				return fmt.Errorf("affinity: from %v: %v", from, o)
			}
			now.pod = o.Pod
			before, known := choices[from]
			switch {
			case known && time.Since(before.asked) >= affinityTimeout:
				clear(choices)
				began = time.Now()
			case known && before.pod != now.pod:
				return fmt.Errorf("affinity: %v went from %s to %s, %v after it asked", from, before.pod, now.pod, time.Since(before.asked))
			}
			choices[from] = now
		}
		<-pace.C
	}
	return nil
}

// expires lets everybody be silent for longer than the time-out until somebody of each
// family is answered by another endpoint. All five keeping theirs by chance is one in
// 243 a round.
func (c *cluster) expires(clients []netip.Addr) error {
	pods := map[netip.Addr]string{}
	var expired [2]bool
	for range 5 {
		for _, from := range clients {
			o := c.try(c.Client, lab.Call{Proto: "tcp", From: from, To: stickyAt(from), Timeout: patience})
			if o.Verdict != lab.Answered {
				return fmt.Errorf("affinity: from %v: %v", from, o)
			}
			if before := pods[from]; before != "" && before != o.Pod {
				expired[from.BitLen()/128] = true
			}
			pods[from] = o.Pod
		}
		if expired == [2]bool{true, true} {
			return nil
		}
		// Nothing but time makes affinity expire, and asking would renew it.
		<-time.After(affinityTimeout * 5 / 4)
	}
	return fmt.Errorf("affinity: five silences of %v, and everybody (false) of IPv4, of IPv6 still has theirs: %v: %v", affinityTimeout*5/4, expired, pods)
}

// affineService has affinity for long, and more than one address.
const affineService = `apiVersion: v1
kind: Service
metadata: {name: extra, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.12
  clusterIPs: [10.96.0.12, "fd00:96::12"]
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: RequireDualStack
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 600}}
  ports:
  - {protocol: TCP, port: 80, targetPort: 8080, nodePort: 30012}
`

// affineFamilies say where pods and the Service are in each family.
var affineFamilies = []struct {
	v4     bool
	pods   map[string]string
	places []netip.AddrPort
}{
	{true, map[string]string{"web-1": "10.244.1.11", "web-2": "10.244.1.12", "web-3": "10.244.2.11"},
		[]netip.AddrPort{netip.MustParseAddrPort("10.96.0.12:80"), netip.MustParseAddrPort("192.0.2.11:30012")}},
	{false, map[string]string{"web-1": "fd00:244:1::11", "web-2": "fd00:244:1::12", "web-3": "fd00:244:2::11"},
		[]netip.AddrPort{netip.MustParseAddrPort("[fd00:96::12]:80"), netip.MustParseAddrPort("[2001:db8::11]:30012")}},
}

// affineManifests are affineService with endpoints in both families, without one pod.
func affineManifests(without string) []byte {
	out := []byte(affineService)
	for i, f := range affineFamilies {
		out = fmt.Appendf(out, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: extra-%d, namespace: default, labels: {kubernetes.io/service-name: extra}}
addressType: %s
ports:
- {name: "", protocol: TCP, port: 8080}
endpoints:
`, i, [...]string{"IPv4", "IPv6"}[i])
		for _, pod := range slices.Sorted(maps.Keys(f.pods)) {
			if pod != without {
				out = fmt.Appendf(out, "- {addresses: [%q], conditions: {ready: true}}\n", f.pods[pod])
			}
		}
	}
	return out
}

// TestAffinityOfAService: a client has one endpoint at all addresses of a Service
// port. When the endpoint goes its clients move at once, and others stay.
func TestAffinityOfAService(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		if b.mode == "ipvs" {
			t.Skip("in IPVS each address of a Service has a memory of its own, see docs/modes.md")
		}
		c := newCluster(t, b, baseScenario(t))
		for _, f := range affineFamilies {
			c.apply(map[string][]byte{"extra.yaml": affineManifests("")})
			for _, n := range c.Nodes() { // in both families, of which an endpoint may have just left
				if err := c.inForceOn(n); err != nil {
					t.Fatal(err)
				}
			}
			c.movesOn(f.places, ofFamily(f.v4, c.Client.Addrs))
		}
	})
}

// movesOn has clients call all places again and again, and takes an endpoint away.
func (c *cluster) movesOn(places []netip.AddrPort, clients []netip.Addr) {
	t := c.t
	visitor := c.host("pod:visitor-1")
	if _, err := c.leaves(visitor, places[0], ""); err != nil {
		t.Fatal(err)
	}
	ask := func(from netip.Addr, to netip.AddrPort) string {
		o := c.try(c.Client, lab.Call{Proto: "tcp", From: from, To: to, Timeout: patience})
		if o.Verdict != lab.Answered {
			t.Fatalf("from %v to %v: %v", from, to, o)
		}
		return o.Pod
	}
	pods := map[netip.Addr]string{}
	for _, from := range clients {
		pods[from] = ask(from, places[0])
		for i := range 6 {
			if pod := ask(from, places[i%2]); pod != pods[from] {
				t.Errorf("%v has %s, and %s at %v", from, pods[from], pod, places[i%2])
			}
		}
	}
	leaves := c.try(visitor, lab.Call{Proto: "tcp", To: places[0], Timeout: patience}).Pod
	c.apply(map[string][]byte{"extra.yaml": affineManifests(leaves)})
	// Who had it tells when the change is there.
	if now, err := c.leaves(visitor, places[0], leaves); err != nil {
		t.Fatal(err)
	} else if again := c.try(visitor, lab.Call{Proto: "tcp", To: places[1], Timeout: patience}); again.Pod != now {
		t.Errorf("visitor-1 moved to %s, and then: %v", now, again)
	}
	for from, before := range pods {
		for i := range 4 {
			switch pod := ask(from, places[i%2]); {
			case pod == leaves:
				t.Errorf("%v still goes to %s, which left", from, pod)
			case before != leaves && pod != before:
				t.Errorf("%v went from %s, which stayed, to %s", from, before, pod)
			}
		}
	}
	c.count("affinity", 4*len(pods))
}

// leaves polls until somebody is answered by another pod, and returns it.
func (c *cluster) leaves(from *lab.Host, to netip.AddrPort, pod string) (other string, err error) {
	err = eventually(func() error {
		o := c.try(from, lab.Call{Proto: "tcp", To: to, Timeout: silence})
		if o.Verdict != lab.Answered || o.Pod == pod {
			return fmt.Errorf("%v is still: %v", to, o)
		}
		other = o.Pod
		return nil
	})
	return other, err
}
