package demo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portolan/lab"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
)

// load reads files as the proxy does, and fails on any problem.
func load(t *testing.T, paths ...string) []*service.Service {
	t.Helper()
	snapshot, problems := manifests.New(paths, kube.NewCluster(kube.Settings{})).Load(t.Context())
	for _, p := range problems {
		if !p.Warning {
			t.Fatal(p)
		}
	}
	return slices.Collect(snapshot.All())
}

// TestDefaultIsReadable: the proxy understands the manifests of the demo, and every
// endpoint is a pod of its topology.
func TestDefaultIsReadable(t *testing.T) {
	for _, size := range [][2]int{{2, 2}, {1, 1}, {3, 1}, {1, 5}} {
		p, err := Default(size[0], size[1])
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "services.yaml")
		if err := os.WriteFile(file, p.Manifests, 0o644); err != nil {
			t.Fatal(err)
		}
		services := load(t, file)
		if len(services) != 4 {
			t.Errorf("%v: %d Services", size, len(services))
		}
		for _, s := range services {
			for _, port := range s.Ports {
				for _, e := range port.Endpoints {
					if !slices.ContainsFunc(p.Topology.Pods, func(pod lab.PodSpec) bool { return slices.Contains(pod.Addrs, e.Addr.Addr()) }) {
						t.Errorf("%v: Service %v: no pod for %v", size, s.Name, e.Addr)
					}
				}
			}
		}
		for _, c := range p.Calls {
			known := c.From == "client" ||
				slices.ContainsFunc(p.Topology.Pods, func(pod lab.PodSpec) bool { return pod.Name == c.From }) ||
				slices.ContainsFunc(p.Topology.Nodes, func(n lab.NodeSpec) bool { return n.Name == c.From })
			if !known {
				t.Errorf("%v: %s: nobody is called %s", size, c.What, c.From)
			}
		}
	}
	if _, err := Default(0, 2); err == nil {
		t.Error("a cluster without nodes was planned")
	}
}

// TestForServices: files of a user become pods on nodes of the names they use, and a
// call for each address.
func TestForServices(t *testing.T) {
	p, err := ForServices(load(t, "../../../examples/nodeport"), 2)
	if err != nil {
		t.Fatal(err)
	}
	var nodes, pods, calls []string
	for _, n := range p.Topology.Nodes {
		nodes = append(nodes, n.Name)
	}
	for _, pod := range p.Topology.Pods {
		pods = append(pods, pod.Name+" on "+pod.Node)
	}
	for _, c := range p.Calls {
		calls = append(calls, c.From+" "+c.To.String())
	}
	for what, pair := range map[string][2]string{
		"nodes": {strings.Join(nodes, ", "), "node-1, node-2"},
		"pods":  {strings.Join(pods, ", "), "web@10.244.1.5 on node-1, web@10.244.2.6 on node-2, visitor on node-1"},
		"calls": {strings.Join(calls, ", "), "visitor 10.96.0.10:80, client 10.96.0.10:80, client 192.0.2.11:30080, client 192.0.2.12:30080"},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %s, want %s", what, pair[0], pair[1])
		}
	}
}
