package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"portolan/e2e/controlplane"
	"portolan/e2e/program"
	"portolan/lab"
)

// patience bounds every wait; what is waited for takes tenths of seconds on a quiet
// machine.
const patience = 30 * time.Second

const (
	proxyToken  = "token-of-the-proxy"
	nobodyToken = "token-of-nobody"
	peerToken   = "token-of-kube-proxy"
	podnetToken = "token-of-the-pod-network"
)

// world is a lab of node1, with the pods a, b and c, and a host with the control
// plane.
type world struct {
	*lab.Lab
	t      *testing.T
	server *controlplane.Server
	node   *lab.Node
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, lab.Topology{
		Nodes:  []lab.NodeSpec{lab.NumberedNode(1)},
		Pods:   []lab.PodSpec{lab.NumberedPod("a", 1, 1, 8080), lab.NumberedPod("b", 1, 2, 8080), lab.NumberedPod("c", 1, 3, 8080)},
		Client: lab.ClientAddrs,
		Routes: lab.RoutesVia("node1"),
	})
}

// newWorldOf adds the control plane to a topology.
func newWorldOf(t *testing.T, topology lab.Topology) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and their rules need root")
	}
	programs, err := controlplane.Build(t.Context(), os.Stderr, "etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	control := lab.NodeSpec{Name: "control", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}}
	topology.Nodes = append(topology.Nodes, control)
	l, err := lab.New(topology)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := controlplane.Start(t.Context(), controlplane.Options{
		Programs: programs, Host: &l.Node("control").Host,
		Users: []controlplane.User{
			{Name: "system:serviceaccount:kube-system:portolan", Token: proxyToken},
			{Name: "nobody", Token: nobodyToken},
			{Name: "system:kube-proxy", Token: peerToken},
			{Name: "system:serviceaccount:kube-system:portolan-podnet", Token: podnetToken},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{Lab: l, t: t, server: s, node: l.Node("node1")}
	w.grantFrom("../../deploy/base/rbac.yaml")
	return w
}

// grantFrom writes the roles of a file of deploy/.
func (w *world) grantFrom(file string) {
	w.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.server.Apply(w.t.Context(), string(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) call(method, path string, in, out any) {
	w.t.Helper()
	if err := w.server.Call(w.t.Context(), method, path, in, out); err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
}

const (
	servicesPath = "/api/v1/namespaces/default/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	nodesPath    = "/api/v1/nodes"
)

// service has a ClusterIP and the TCP port 80.
func newService(name, ip string) *v1.Service {
	s := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80}}}}
	s.Name = name
	return s
}

// slice names pods of node1 as ready endpoints, "a" or with a zone "a@near".
func (w *world) slice(service string, pods ...string) *discovery.EndpointSlice {
	w.t.Helper()
	port, name, node, ready := int32(8080), "", "node1", true
	s := &discovery.EndpointSlice{AddressType: discovery.AddressTypeIPv4,
		Ports: []discovery.EndpointPort{{Name: &name, Port: &port}}}
	s.Name = service + "-1"
	s.Labels = map[string]string{discovery.LabelServiceName: service}
	for _, p := range pods {
		p, zone, hinted := strings.Cut(p, "@")
		pod := w.Pod(p)
		if pod == nil {
			w.t.Fatalf("no pod is called %q", p)
		}
		e := discovery.Endpoint{Addresses: []string{pod.Addrs[0].String()}, NodeName: &node,
			Conditions: discovery.EndpointConditions{Ready: &ready}}
		if hinted {
			e.Hints = &discovery.EndpointHints{ForZones: []discovery.ForZone{{Name: zone}}}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// newNode is the Node of a lab's node.
func (w *world) newNode(name string) *v1.Node {
	n := &v1.Node{Spec: v1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}, PodCIDR: "10.244.1.0/24"}}
	n.Name = name
	n.Labels = map[string]string{v1.LabelTopologyZone: "near"}
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: w.node.Addrs[0].String()}}
	return n
}

// await asks again and again until the answer is yes.
func (w *world) await(what string, done func() bool) time.Duration {
	w.t.Helper()
	start := time.Now()
	for !done() {
		if time.Since(start) > patience {
			w.t.Fatalf("%s: not within %v", what, patience)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-w.t.Context().Done():
			w.t.Fatal("the test ended")
		}
	}
	return time.Since(start)
}

// dial calls port 80 of an address from outside.
func (w *world) dial(ip string) lab.Outcome {
	return w.Client.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(ip), 80), time.Second)
}

// answers waits until only the pod of that name answers: many calls in a row.
func (w *world) answers(ip, pod string) time.Duration {
	w.t.Helper()
	return w.await(ip+" answered by "+pod, func() bool {
		for range 12 {
			if o := w.dial(ip); o.Verdict != lab.Answered || o.Pod != pod {
				return false
			}
		}
		return true
	})
}

// becomes waits for a verdict.
func (w *world) becomes(ip string, v lab.Verdict) {
	w.t.Helper()
	w.await(fmt.Sprintf("%s becomes %v", ip, v), func() bool { return w.dial(ip).Verdict == v })
}

// proxy is a running portolan.
type proxy struct {
	cmd *lab.Cmd
	log *program.Log
	w   *world

	node    *lab.Node
	metrics string // URL
	stopped bool
}

// start starts a proxy on node1, as the user of a token; it ends with the test.
func (w *world) start(token string, args ...string) *proxy {
	w.t.Helper()
	file, err := w.server.Kubeconfig(token)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.startWith(file, args...)
}

// startWith starts a proxy that finds its API server in a file.
func (w *world) startWith(file string, args ...string) *proxy {
	w.t.Helper()
	args = append([]string{"proxy", "--kubeconfig", file, "--cluster-cidr", "10.244.0.0/16,fd00:244::/32", "-v", "2"}, args...)
	p := &proxy{cmd: w.node.Command(context.WithoutCancel(w.t.Context()), lab.HostVariant, binary, args...), log: &program.Log{}, w: w, node: w.node, metrics: "http://127.0.0.1:10249/metrics"}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		p.stop()
		if w.t.Failed() {
			w.t.Logf("the proxy said:\n%s", p.log.Tail(60))
		}
	})
	return p
}

// stop ends the proxy, once; that it has ended by itself is an error.
func (p *proxy) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	select {
	case <-p.cmd.Done():
		p.w.t.Error("the proxy ended before its time")
	default:
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
}

// healthy waits for the first sync.
func (p *proxy) healthy() *proxy {
	p.w.t.Helper()
	p.becomes(http.StatusOK)
	return p
}

// becomes waits for a status of /healthz.
func (p *proxy) becomes(status int) {
	p.w.t.Helper()
	p.w.await(fmt.Sprintf("/healthz says %d", status), func() bool { return p.healthz() == status })
}

// healthz is the HTTP status, 0 without an answer.
func (p *proxy) healthz() int {
	client := http.Client{Transport: &http.Transport{DialContext: p.w.node.DialContext, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	response, err := client.Get("http://127.0.0.1:10256/healthz")
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// says waits until the log has a text.
func (p *proxy) says(text string) {
	p.w.t.Helper()
	p.w.await(fmt.Sprintf("the proxy says %q", text), func() bool { return p.log.Has(text) })
}
