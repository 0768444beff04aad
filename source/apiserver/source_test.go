package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portolan/service"
	"portolan/source/kube"
)

// source is one without a connection: tests play the reflectors.
func source(detect kube.DetectMode, log *logText) *Source {
	return sourceOf(&Client{Host: "https://test"}, detect, log)
}

func sourceOf(client *Client, detect kube.DetectMode, log *logText) *Source {
	return New(client, kube.NewCluster(kube.Settings{NodeName: "node1", DetectMode: detect}),
		Options{NodeName: "node1", PodCIDRs: detect == kube.DetectNodeCIDR, Log: slog.New(slog.NewTextHandler(log, nil))})
}

type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("u-" + name), ResourceVersion: version}
}

func svc(name, version, ip string) *v1.Service {
	return &v1.Service{ObjectMeta: meta(name, version), Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80, Protocol: v1.ProtocolTCP}}}}
}

func slice(name, version, owner string, addresses ...string) *discovery.EndpointSlice {
	port, portName := int32(8080), ""
	s := &discovery.EndpointSlice{ObjectMeta: meta(name, version), AddressType: discovery.AddressTypeIPv4,
		Ports: []discovery.EndpointPort{{Name: &portName, Port: &port}}}
	s.Labels = map[string]string{discovery.LabelServiceName: owner}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discovery.Endpoint{Addresses: []string{a}})
	}
	return s
}

func serviceCIDR(name, version string, cidrs ...string) *networking.ServiceCIDR {
	o := &networking.ServiceCIDR{ObjectMeta: meta(name, version), Spec: networking.ServiceCIDRSpec{CIDRs: cidrs}}
	o.Namespace = ""
	return o
}

func node(version string, change func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: meta("node1", version)}
	n.Namespace = ""
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.11"}}
	if change != nil {
		change(n)
	}
	return n
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// endpoints lists those of the first port of a Service.
func endpoints(s *service.Snapshot, name string) string {
	svc := s.Service(service.Name{Namespace: "default", Name: name})
	if svc == nil {
		return "no Service"
	}
	var out []string
	for _, e := range svc.Ports[0].Endpoints {
		out = append(out, e.Addr.Addr().String())
	}
	return strings.Join(out, " ")
}

// A new list takes what is not in it any more, and an old version changes nothing.
func TestLists(t *testing.T) {
	s := source(kube.DetectClusterCIDR, &logText{})
	must(t, s.services.Replace([]any{svc("web", "1", "10.96.0.1"), svc("old", "1", "10.96.0.2")}, "1"),
		s.slices.Replace([]any{slice("web-1", "1", "web", "10.244.1.1"), slice("web-2", "1", "web", "10.244.1.2")}, "1"))
	if got := endpoints(s.cluster.Snapshot(), "web"); got != "10.244.1.1 10.244.1.2" {
		t.Errorf("endpoints after the first list: %s", got)
	}
	first := s.cluster.Snapshot()

	must(t, s.services.Replace([]any{svc("web", "1", "10.96.0.1"), svc("old", "1", "10.96.0.2")}, "2"))
	if s.cluster.Snapshot() != first {
		t.Error("a list that says the same changed something")
	}

	must(t, s.services.Replace([]any{svc("web", "1", "10.96.0.1")}, "3"), s.slices.Replace([]any{slice("web-2", "2", "web", "10.244.1.9")}, "3"))
	now := s.cluster.Snapshot()
	if got := endpoints(now, "web"); got != "10.244.1.9" {
		t.Errorf("endpoints after a list without one slice: %s", got)
	}
	if got := endpoints(now, "old"); got != "no Service" {
		t.Errorf("a Service that no list has: %s", got)
	}

	// The same name again, made anew while nobody looked: the version may be the same.
	again := svc("web", "1", "10.96.0.7")
	again.UID = "another"
	must(t, s.services.Replace([]any{again}, "4"))
	if got := s.cluster.Snapshot().Service(service.Name{Namespace: "default", Name: "web"}).ClusterIPs[0]; got != netip.MustParseAddr("10.96.0.7") {
		t.Errorf("the address of a Service that was made anew: %v", got)
	}
}

// Slices that move to another Service, and deletions that name another than was known.
func TestEvents(t *testing.T) {
	s := source(kube.DetectClusterCIDR, &logText{})
	must(t, s.services.Replace([]any{svc("web", "1", "10.96.0.1"), svc("other", "1", "10.96.0.2")}, "1"), s.slices.Replace(nil, "1"))
	must(t, s.slices.Add(slice("a", "2", "web", "10.244.1.1")), s.slices.Update(slice("a", "3", "other", "10.244.1.1")))
	now := s.cluster.Snapshot()
	if web, other := endpoints(now, "web"), endpoints(now, "other"); web != "" || other != "10.244.1.1" {
		t.Errorf("a slice that moved: web %q, other %q", web, other)
	}
	// What comes with a deletion may name another Service than the slice that is there.
	must(t, s.slices.Delete(slice("a", "4", "web")), s.slices.Delete(slice("unknown", "4", "web")))
	if other := endpoints(s.cluster.Snapshot(), "other"); other != "" {
		t.Errorf("a slice that went: %q", other)
	}
	if err := s.slices.Add(svc("web", "1", "")); err == nil {
		t.Error("a Service among slices is no error")
	}
}

// told collects Snapshots with the time since the start at which they came.
type told struct {
	mu    sync.Mutex
	last  *service.Snapshot
	times []time.Duration
}

// run starts the telling, and returns what it tells.
func run(t *testing.T, s *Source, settings <-chan func(*kube.Settings)) *told {
	out := &told{}
	start := time.Now()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.tell(ctx, settings, func(now *service.Snapshot) {
			out.mu.Lock()
			defer out.mu.Unlock()
			out.last, out.times = now, append(out.times, time.Since(start))
		})
	})
	t.Cleanup(func() { stop(); wg.Wait() })
	return out
}

func (o *told) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.times)
}

func bare(n *v1.Node)     { n.Status.Addresses = nil }
func withPods(n *v1.Node) { n.Spec.PodCIDRs = []string{"10.244.1.0/24"} }

// firstSteps are what a Source hears, or does not, before its first Snapshot.
var firstSteps = map[string]func(*Source) error{
	"services": func(s *Source) error { return s.services.Replace([]any{svc("web", "1", "10.96.0.1")}, "1") },
	"slices":   func(s *Source) error { return s.slices.Replace(nil, "1") },
	"cidrs": func(s *Source) error {
		return s.cidrs.Replace([]any{serviceCIDR("kubernetes", "1", "10.96.0.0/12")}, "1")
	},
	"cidrs refused": func(s *Source) error { s.goOnWithout(); return nil },
	"node":          func(s *Source) error { return s.node.Replace([]any{node("1", nil)}, "1") },
	"no node":       func(s *Source) error { return s.node.Replace(nil, "1") },
	"bare node":     func(s *Source) error { return s.node.Replace([]any{node("1", bare)}, "1") },
	"node complete": func(s *Source) error { return s.node.Update(node("2", withPods)) },
	"wait 20s":      func(*Source) error { time.Sleep(20 * time.Second); return nil },
	"wait 2m":       func(*Source) error { time.Sleep(2 * time.Minute); return nil },
	"wait 4m":       func(*Source) error { time.Sleep(4 * time.Minute); return nil },
}

// Nothing is told until each list and the Node are there.
func TestFirstSnapshot(t *testing.T) {
	for _, c := range []struct {
		name   string
		detect kube.DetectMode
		steps  []string
		told   int
		says   string
	}{
		{"no slices", kube.DetectClusterCIDR, []string{"services", "cidrs", "node", "wait 4m"}, 0, ""},
		{"no Services", kube.DetectClusterCIDR, []string{"slices", "cidrs", "node", "wait 4m"}, 0, ""},
		{"all", kube.DetectClusterCIDR, []string{"node", "cidrs", "services", "slices"}, 1, ""},
		{"no ServiceCIDRs", kube.DetectClusterCIDR, []string{"services", "slices", "node", "wait 4m"}, 0, ""},
		{"ServiceCIDRs are not to be had", kube.DetectClusterCIDR, []string{"node", "services", "slices", "cidrs refused"}, 1, ""},
		{"ServiceCIDRs are refused too early", kube.DetectClusterCIDR, []string{"cidrs refused", "node", "services", "slices"}, 0, ""},
		{"no Node yet", kube.DetectClusterCIDR, []string{"services", "slices", "cidrs", "no node", "wait 20s"}, 0, "no Node has the name of this host"},
		{"no Node at all", kube.DetectClusterCIDR, []string{"services", "slices", "cidrs", "no node", "wait 2m"}, 1, "going on without the own Node"},
		{"nodes are not allowed", kube.DetectClusterCIDR, []string{"services", "slices", "cidrs", "wait 2m"}, 1, "going on without the own Node"},
		{"Node without addresses", kube.DetectClusterCIDR, []string{"services", "slices", "cidrs", "bare node", "wait 2m"}, 1, "missing=addresses"},
		{"Node that gets addresses", kube.DetectClusterCIDR, []string{"services", "slices", "cidrs", "bare node", "wait 20s", "node complete"}, 1, ""},
		{"pod CIDRs are waited for", kube.DetectNodeCIDR, []string{"services", "slices", "cidrs", "node", "wait 4m"}, 0, "waiting on"},
		{"pod CIDRs never come", kube.DetectNodeCIDR, []string{"services", "slices", "cidrs", "node", "wait 4m", "wait 2m"}, 1, "going on without the own Node"},
		{"pod CIDRs come", kube.DetectNodeCIDR, []string{"services", "slices", "cidrs", "node", "wait 4m", "node complete"}, 1, "waiting on"},
		{"no address, then no pod CIDRs", kube.DetectNodeCIDR, []string{"services", "slices", "cidrs", "bare node", "wait 2m"}, 1, "missing=addresses"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logText{}
				s := source(c.detect, log)
				out := run(t, s, nil)
				for _, step := range c.steps {
					if out.count() > 0 {
						t.Errorf("something was told before step %q", step)
					}
					must(t, firstSteps[step](s))
					synctest.Wait()
				}
				if out.count() != c.told {
					t.Errorf("%d Snapshots, want %d", out.count(), c.told)
				}
				if c.says != "" && !log.has(c.says) {
					t.Errorf("the log does not say %q:\n%s", c.says, log.text.String())
				}
				if c.says == "" && log.has("level=ERROR") {
					t.Errorf("an error is told:\n%s", log.text.String())
				}
			})
		})
	}
}

// In a storm few Snapshots are told, and its last event waits for a lull at most.
func TestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source(kube.DetectClusterCIDR, &logText{})
		out := run(t, s, nil)
		must(t, s.services.Replace(nil, "1"), s.slices.Replace(nil, "1"), s.cidrs.Replace(nil, "1"), s.node.Replace([]any{node("1", nil)}, "1"))
		time.Sleep(time.Second)
		const events, pace = 400, 8 * time.Millisecond
		for i := range events {
			must(t, s.services.Add(svc(fmt.Sprintf("s%d", i), "2", "10.96.0.1")))
			if i < events-1 {
				time.Sleep(pace)
			}
		}
		if n := out.count() - 1; n > int(events*pace/busy)+2*inARow {
			t.Errorf("%d Snapshots of a storm of %d events in %v", n, events, events*pace)
		}
		time.Sleep(lull)
		synctest.Wait()
		if endpoints(out.last, fmt.Sprintf("s%d", events-1)) == "no Service" {
			t.Error("the last event waits longer than a lull")
		}
	})
}

// The first change is told at once, and a burst of them in few Snapshots.
func TestCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := source(kube.DetectClusterCIDR, &logText{})
		settings := make(chan func(*kube.Settings))
		out := run(t, s, settings)
		must(t, s.services.Replace(nil, "1"), s.slices.Replace(nil, "1"), s.cidrs.Replace(nil, "1"), s.node.Replace([]any{node("1", nil)}, "1"))
		synctest.Wait()
		if out.count() != 1 || out.times[0] != 0 {
			t.Fatalf("first Snapshots at %v", out.times)
		}
		time.Sleep(time.Second)
		const events = 500
		for i := range events {
			must(t, s.services.Add(svc(fmt.Sprintf("s%d", i), "2", "10.96.0.1")))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := out.count() - 1; n < 2 || n > events/10+1 {
			t.Errorf("%d events in %d ms gave %d Snapshots", events, events, n)
		}
		if out.times[1] != time.Second {
			t.Errorf("the first of the burst was told after %v", out.times[1]-time.Second)
		}
		if endpoints(out.last, fmt.Sprintf("s%d", events-1)) == "no Service" {
			t.Error("the last of the burst is missing")
		}

		before := out.count()
		must(t, s.services.Update(svc("s1", "3", "10.96.0.1"))) // a version, and nothing else
		time.Sleep(time.Second)
		if out.count() != before {
			t.Error("a change that means nothing was told")
		}
		settings <- func(s *kube.Settings) { s.MasqueradeAll = true }
		time.Sleep(time.Second)
		if out.count() != before+1 || !out.last.Node.MasqueradeAll {
			t.Error("settings that changed were not told")
		}
	})
}

// The own Node is followed; when it is deleted, its addresses stay.
func TestNode(t *testing.T) {
	s := source(kube.DetectNodeCIDR, &logText{})
	must(t, s.node.Replace([]any{node("1", func(n *v1.Node) {
		n.Labels = map[string]string{v1.LabelTopologyZone: "near"}
		n.Spec.PodCIDRs = []string{"10.244.1.0/24"}
	})}, "1"))
	seen := func() string {
		n := s.cluster.Snapshot().Node
		return fmt.Sprint(n.Zone, n.IPs, n.Detector.CIDRs, n.Leaving)
	}
	if got, want := seen(), "near[192.0.2.11] [10.244.1.0/24] false"; got != want {
		t.Errorf("first: %s, want %s", got, want)
	}
	changed := node("2", func(n *v1.Node) {
		n.Labels = map[string]string{v1.LabelTopologyZone: "far"}
		n.Spec.PodCIDRs = []string{"10.244.2.0/24"}
		n.Status.Addresses[0].Address = "192.0.2.12"
		n.Spec.Taints = []v1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}
	})
	must(t, s.node.Update(changed))
	if got, want := seen(), "far[192.0.2.12] [10.244.2.0/24] true"; got != want {
		t.Errorf("changed: %s, want %s", got, want)
	}
	must(t, s.node.Update(node("3", nil)), s.node.Delete(node("4", nil)))
	if got, want := seen(), "[192.0.2.11] [] true"; got != want {
		t.Errorf("deleted: %s, want %s", got, want)
	}
	must(t, s.node.Replace([]any{node("5", nil)}, "5"))
	if got, want := seen(), "[192.0.2.11] [] false"; got != want {
		t.Errorf("there again: %s, want %s", got, want)
	}
	must(t, s.node.Replace(nil, "6"))
	if got, want := seen(), "[192.0.2.11] [] true"; got != want {
		t.Errorf("gone from a list: %s, want %s", got, want)
	}
}

// ServiceCIDRs come and go like everything else, and what they say is of the Node.
func TestServiceCIDRs(t *testing.T) {
	s := source(kube.DetectClusterCIDR, &logText{})
	must(t, s.cidrs.Replace([]any{serviceCIDR("kubernetes", "1", "10.96.0.0/12", "fd00:96::/112")}, "1"),
		s.cidrs.Add(serviceCIDR("more", "2", "10.200.0.0/16")))
	want := func(list ...string) {
		t.Helper()
		var got []string
		for _, p := range s.cluster.Snapshot().Node.ServiceCIDRs {
			got = append(got, p.String())
		}
		if !slices.Equal(got, list) {
			t.Errorf("ServiceCIDRs %v, want %v", got, list)
		}
	}
	want("10.96.0.0/12", "10.200.0.0/16", "fd00:96::/112")
	must(t, s.cidrs.Delete(serviceCIDR("kubernetes", "3", "10.96.0.0/12", "fd00:96::/112")))
	want("10.200.0.0/16")
}
