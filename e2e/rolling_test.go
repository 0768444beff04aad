package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"portolan/lab"
)

var rolls = flag.Int("rolls", 10, "how often TestRollingUpdates replaces all pods in each mode")

// rollers are the Services of one set of pods; each is called in the ways that its
// policy is about.
var rollers = []roller{
	{name: "cluster", policy: "Cluster", number: 1, routes: []route{
		{"client", "10.96.5.1:80"}, {"pod:visitor", "[fd00:96::501]:80"}, {"node2", "10.96.5.1:80"}, {"client", "192.0.2.12:31201"}}},
	{name: "local", policy: "Local", number: 2, routes: []route{
		{"client", "192.0.2.11:31202"}, {"client", "[2001:db8::11]:31202"}, {"pod:visitor", "10.96.5.2:80"}}},
	{name: "eager", policy: "Cluster", number: 3, eager: true, routes: []route{{"client", "10.96.5.3:80"}, {"node1", "10.96.5.3:80"}}},
}

type roller struct {
	name, policy string
	number       int
	// eager has publishNotReadyAddresses, so that its slices call every pod ready.
	eager  bool
	routes []route
}

// replica is one pod of the rolling update.
type replica struct {
	pod lab.PodSpec
	is  podState
}

// rolling is a rolling update under way.
type rolling struct {
	*cluster
	replicas []*replica
	made     int
}

// TestRollingUpdates: pods are replaced one by one, as a Deployment does it, again and
// again, at 200 new connections a second, and none fails: a new pod becomes ready, an
// old one terminates, serves on for as long as the news of it takes, refuses and goes.
func TestRollingUpdates(t *testing.T) {
	eachBackend(t, func(t *testing.T, b portolan) {
		s := changeScenario()
		s.args = []string{"--iptables-min-sync-period", "20ms"}
		u := &rolling{cluster: newCluster(t, b, s)}
		for range 3 {
			u.add(t, true)
		}
		u.put()
		var routes []route
		for _, r := range rollers {
			routes = append(routes, r.routes...)
		}
		for _, n := range u.Nodes() {
			if err := u.inForceOn(n); err != nil {
				t.Fatal(err)
			}
		}
		traffic := u.steady(routes, 200)
		t.Cleanup(func() { traffic() })
		for i := range *rolls {
			for range 3 {
				if err := u.replace(t, i); err != nil {
					t.Fatalf("roll %d: %v", i, err)
				}
			}
			u.flap()
		}
		// All at once: the old ones serve until the new ones are ready.
		if err := u.swap(t); err != nil {
			t.Error(err)
		}
		if err := traffic(); err != nil {
			t.Error(err)
		}
		u.count("changes", u.made)
	})
}

// add makes a pod on node1; its number is used again after a long time.
func (u *rolling) add(t *testing.T, ready bool) *replica {
	t.Helper()
	name := fmt.Sprintf("roll-%d", u.made)
	pod := lab.NumberedPod(name, 1, 50+u.made%40, podPort)
	u.made++
	if _, err := u.AddPod(pod); err != nil {
		t.Fatal(err)
	}
	for _, addr := range pod.Addrs { // no slice has it before its node reaches it
		if err := eventually(func() error {
			if o := u.Node("node1").Dial("tcp", netip.AddrPortFrom(addr, podPort), silence); o.Verdict != lab.Answered {
				return fmt.Errorf("pod %s at %v: %v", name, addr, o)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	r := &replica{pod: pod, is: podState{pod: name, ready: ready, serving: ready}}
	u.replicas = append(u.replicas, r)
	return r
}

// replace takes the oldest pod out for a new one.
func (u *rolling) replace(t *testing.T, round int) error {
	old := u.replicas[0]
	fresh := u.add(t, false)
	u.put() // it is not ready yet
	fresh.is.ready, fresh.is.serving = true, true
	u.put()
	old.is.ready, old.is.terminating = false, true
	old.is.serving = round%2 == 0 // what its probe says when it shuts down
	u.put()
	return u.retire(t, old)
}

// retire waits until both nodes lead nobody to a pod that terminates, has it refuse,
// and forgets it. An eager Service has lost it by then: it would lead to it.
func (u *rolling) retire(t *testing.T, old *replica) error {
	for _, n := range u.Nodes() {
		if err := u.inForceOn(n); err != nil {
			return err
		}
	}
	u.replicas = slices.DeleteFunc(u.replicas, func(r *replica) bool { return r == old })
	if err := u.Pod(old.pod.Name).Drain(t.Context()); err != nil {
		return err
	}
	u.put()
	return nil
}

// flap has one pod become unready and ready, faster than anybody writes.
func (u *rolling) flap() {
	for i := range 6 {
		u.replicas[1].is.ready = i%2 == 1
		u.replicas[1].is.serving = i%2 == 1
		u.put()
	}
}

// swap has all pods terminate before new ones are ready.
func (u *rolling) swap(t *testing.T) error {
	old := slices.Clone(u.replicas)
	for range old {
		u.add(t, false)
	}
	for _, r := range old {
		r.is.ready, r.is.terminating = false, true
	}
	u.put()
	for _, r := range u.replicas {
		if !slices.Contains(old, r) {
			r.is.ready, r.is.serving = true, true
		}
	}
	u.put()
	for _, r := range old {
		if err := u.retire(t, r); err != nil {
			return err
		}
	}
	return nil
}

// put writes the Services and their slices.
func (u *rolling) put() {
	var b bytes.Buffer
	for _, r := range rollers {
		r.yaml(&b, u.replicas)
	}
	u.apply(map[string][]byte{"rolling.yaml": b.Bytes()})
}

// yaml is the Service and its slices; external policy and node port say what its
// policy is.
func (r roller) yaml(b *bytes.Buffer, replicas []*replica) {
	addr := pair("10.96.5.%d", "fd00:96::5%02x", r.number)
	fmt.Fprintf(b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n", r.name)
	fmt.Fprintf(b, "  type: NodePort\n  externalTrafficPolicy: %s\n  publishNotReadyAddresses: %t\n", r.policy, r.eager)
	fmt.Fprintf(b, "  clusterIP: %s\n  clusterIPs: [%s, %q]\n  ipFamilies: [IPv4, IPv6]\n  ipFamilyPolicy: RequireDualStack\n", addr[0], addr[0], addr[1])
	fmt.Fprintf(b, "  ports:\n  - {name: p0, protocol: TCP, port: 80, targetPort: %d, nodePort: %d}\n", podPort, 31200+r.number)
	for family, kind := range []string{"IPv4", "IPv6"} {
		fmt.Fprintf(b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s-%d, namespace: default, labels: {kubernetes.io/service-name: %s}}\n", r.name, family, r.name)
		fmt.Fprintf(b, "addressType: %s\nports:\n- {name: p0, protocol: TCP, port: %d}\nendpoints:\n", kind, podPort)
		for _, p := range replicas {
			if !r.eager || !p.is.terminating {
				fmt.Fprintf(b, "- {addresses: [%q], nodeName: node1, conditions: {ready: %t, serving: %t, terminating: %t}}\n",
					p.pod.Addrs[family], p.is.ready || r.eager, p.is.serving, p.is.terminating)
			}
		}
	}
}

// steady makes so many calls a second over all ways, none of which may fail.
func (u *rolling) steady(ways []route, rate int) (stop func() error) {
	ended := make(chan struct{})
	var calling sync.WaitGroup
	var mu sync.Mutex // guards the next two
	made := 0
	var failed []string
	started := time.Now()
	one := func(way route) {
		began := time.Since(started)
		o := u.host(way.from).Dial("tcp", netip.MustParseAddrPort(way.to), patience)
		mu.Lock()
		defer mu.Unlock()
		if made++; o.Verdict != lab.Answered {
			failed = append(failed, fmt.Sprintf("%s to %s after %v: %v", way.from, way.to, began.Round(time.Millisecond), o))
		}
	}
	calling.Go(func() {
		ticker := time.NewTicker(time.Second / time.Duration(rate))
		defer ticker.Stop()
		for i := 0; ; {
			for due := int(time.Since(started) * time.Duration(rate) / time.Second); i < due; i++ { // a ticker alone skips
				calling.Go(func() { one(ways[i%len(ways)]) })
			}
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
		}
	})
	return sync.OnceValue(func() error {
		close(ended)
		calling.Wait()
		u.t.Logf("%d pods replaced, %d connections at %d a second, %d failed", u.made-3, made, rate, len(failed))
		u.tries += made
		if len(failed) > 0 {
			return fmt.Errorf("%d of %d connections failed: %s", len(failed), made, strings.Join(failed[:min(len(failed), 5)], "; "))
		}
		return nil
	})
}
