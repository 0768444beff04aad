package controlplane_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"

	"portolan/e2e/controlplane"
	"portolan/lab"
)

// start starts a control plane that ends with the test, which must leave nothing.
func start(t *testing.T, o controlplane.Options) *controlplane.Server {
	t.Helper()
	programs, err := controlplane.Build(t.Context(), os.Stderr, "etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	o.Programs = programs
	s, err := controlplane.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.Etcd.Log()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the log of etcd is still there: %v", err)
		}
		if s.Etcd.PID() != 0 || s.APIServer.PID() != 0 {
			t.Errorf("etcd %d and API server %d still run", s.Etcd.PID(), s.APIServer.PID())
		}
	})
	return s
}

const services = "/api/v1/namespaces/default/services"

func create(ctx context.Context, s *controlplane.Server, name, ip string) (v1.Service, error) {
	in := v1.Service{Spec: v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80}}}}
	in.Name = name
	var out v1.Service
	err := s.Call(ctx, "POST", services, in, &out)
	return out, err
}

// code is the HTTP status of a refusal, 0 of success.
func code(t *testing.T, err error) int {
	t.Helper()
	var status controlplane.StatusError
	if err != nil && !errors.As(err, &status) {
		t.Fatalf("no answer: %v", err)
	}
	return status.Code
}

// Without a host the API server answers on loopback, and its users have the rights they were
// given.
func TestLoopback(t *testing.T) {
	ctx := t.Context()
	s := start(t, controlplane.Options{Users: []controlplane.User{{Name: "nobody", Token: "secret"}}})
	var version struct{ GitVersion string }
	if err := s.Call(ctx, "GET", "/version", nil, &version); err != nil {
		t.Fatal(err)
	}
	t.Logf("kube-apiserver says it is %s", version.GitVersion)
	if version.GitVersion == "v0.0.0-master+$Format:%H$" {
		t.Error("the API server does not know its version")
	}

	one, err := create(ctx, s, "one", "10.96.0.17")
	if err != nil {
		t.Fatal(err)
	}
	if one.Spec.ClusterIP != "10.96.0.17" || one.ResourceVersion == "" {
		t.Errorf("created %+v", one.Spec)
	}
	if _, err := create(ctx, s, "far", "10.1.2.3"); code(t, err) != 422 {
		t.Errorf("an address of no Service network: %v", err)
	}

	for token, want := range map[string]int{s.Token(): 0, "secret": 403, "wrong": 401} {
		c := s.Client(token)
		if got := code(t, c.Call(ctx, "GET", services, nil, nil)); got != want {
			t.Errorf("token %q: %d, want %d", token, got, want)
		}
		c.Close()
	}
}

// Objects outlive every way in which the programs may end.
func TestOutages(t *testing.T) {
	ctx := t.Context()
	s := start(t, controlplane.Options{})
	one, err := create(ctx, s, "one", "")
	if err != nil {
		t.Fatal(err)
	}
	outages := map[string]func() error{
		"API server stopped": func() error { return s.APIServer.Stop(ctx) },
		"API server killed":  s.APIServer.Kill,
	}
	for name, down := range outages {
		if err := down(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Call(ctx, "GET", services, nil, nil); err == nil {
			t.Errorf("%s: still answers", name)
		}
		if err := s.APIServer.Start(ctx); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Call(ctx, "GET", services+"/one", nil, nil); err != nil {
			t.Errorf("%s and started again: %v", name, err)
		}
	}
	if err := errors.Join(s.Etcd.Kill(), s.Etcd.Start(ctx)); err != nil {
		t.Fatal(err)
	}

	if _, err := create(ctx, s, "two", ""); err != nil {
		t.Fatal(err)
	}
	list := services + "?resourceVersionMatch=Exact&resourceVersion=" + one.ResourceVersion
	if got := code(t, s.Call(ctx, "GET", list, nil, nil)); got != 0 {
		t.Errorf("the revision of the first Service, before compaction: %d", got)
	}
	if err := errors.Join(s.APIServer.Kill(), s.Compact(ctx), s.APIServer.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := code(t, s.Call(ctx, "GET", list, nil, nil)); got != 410 {
		t.Errorf("the revision of the first Service, after compaction: %d, want 410", got)
	}
}

// A node of a lab reaches the control plane on another host of the lab.
func TestInLab(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	control := lab.NodeSpec{Name: "control", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}}
	l, err := lab.New(lab.Topology{Nodes: []lab.NodeSpec{lab.NumberedNode(1), control}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := start(t, controlplane.Options{Host: &l.Node("control").Host})
	if _, err := create(t.Context(), s, "one", ""); err != nil {
		t.Fatal(err)
	}
	file, err := s.Kubeconfig(s.Token())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || len(text) < 500 {
		t.Errorf("kubeconfig: %v\n%s", err, text)
	}
	conn, err := l.Node("node1").DialContext(t.Context(), "tcp", s.URL()[len("https://"):])
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}
