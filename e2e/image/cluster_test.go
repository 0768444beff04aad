package image

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"portolan/e2e/controlplane"
	"portolan/e2e/program"
	"portolan/lab"
)

// account is a service account of the manifests, with what a kubelet gives its pods.
type account struct{ name, token string }

// inCluster starts a control plane beside a node, with the roles of a folder of deploy/
// for the account, and the Node and Service of the lab.
func inCluster(t *testing.T, folder string, a account) (world, *controlplane.Server) {
	t.Helper()
	programs, err := controlplane.Build(t.Context(), os.Stderr, "etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	control := lab.NodeSpec{Name: "control", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}}
	w := newWorld(t, lab.NFT, control)
	server, err := controlplane.Start(t.Context(), controlplane.Options{
		Programs: programs, Host: &w.Node("control").Host,
		Users: []controlplane.User{{Name: "system:serviceaccount:kube-system:" + a.name, Token: a.token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	roles, err := os.ReadFile("../../deploy/" + folder + "/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Apply(t.Context(), string(roles)+"\n---\n"+services); err != nil {
		t.Fatal(err)
	}
	// A node's own agent writes its addresses.
	addresses := map[string]any{"status": map[string]any{"addresses": []map[string]string{
		{"type": "InternalIP", "address": "192.0.2.11"}, {"type": "InternalIP", "address": "2001:db8::11"}}}}
	if err := server.Call(t.Context(), "PATCH", "/api/v1/nodes/node1/status", addresses, nil); err != nil {
		t.Fatal(err)
	}
	return w, server
}

// clusterPod is the container of a DaemonSet with its account's token.
func (w world) clusterPod(folder string, files map[string]string, server *controlplane.Server, a account) container {
	w.t.Helper()
	spec := daemonSet(w.t, "../../deploy/"+folder+"/daemonset.yaml").Spec.Template.Spec
	c := podOf(w.t, spec, spec.Containers[0], "node1", files)
	dir := w.t.TempDir()
	for file, text := range map[string]string{"token": a.token, "ca.crt": string(server.CA()), "namespace": "kube-system"} {
		if err := os.WriteFile(dir+"/"+file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	c.Mounts = append(c.Mounts, mount{dir, "/var/run/secrets/kubernetes.io/serviceaccount", true})
	return c
}

// The DaemonSet's container as a cluster has it: its files, its ConfigMap, its service
// account's token, and no rights but those that the roles give it.
func TestPodInCluster(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	a := account{"portolan", "token-of-the-proxy"}
	w, server := inCluster(t, "base", a)
	kubeconfig, err := os.ReadFile("../../deploy/base/kubeconfig.conf")
	if err != nil {
		t.Fatal(err)
	}
	c := w.clusterPod("base", map[string]string{
		"config.conf":     w.config(""),
		"kubeconfig.conf": strings.Replace(string(kubeconfig), "https://control-plane.example:6443", server.URL(), 1),
	}, server, a)
	c.Filter = filter(t)
	w.serves(c)
}

// So does the one of the pod network: it says that it is ready, and has written what a
// container runtime needs.
func TestPodNetworkInCluster(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	a := account{"portolan-podnet", "token-of-the-pod-network"}
	w, server := inCluster(t, "podnet", a)
	conf, err := os.ReadFile("../../deploy/podnet/net-conf.json")
	if err != nil {
		t.Fatal(err)
	}
	c := w.clusterPod("podnet", map[string]string{"net-conf.json": string(conf)}, server, a)
	host, port, _ := strings.Cut(strings.TrimPrefix(server.URL(), "https://"), ":")
	c.Env = append(c.Env, "NODE_NAME=node1", "KUBERNETES_SERVICE_HOST="+host, "KUBERNETES_SERVICE_PORT="+port)
	cmd := c.command(t, w.node)
	log := &program.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.node.AwaitOK(ctx, "http://127.0.0.1:8081/readyz", cmd.Done()); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if got, want := rights(t, cmd.Process.Pid), c.rights(); got != want {
		t.Errorf("rights: wanted %s, got %s", want, got)
	}
	for _, m := range c.Mounts {
		for place, file := range map[string]string{"/run/flannel": "subnet.env", "/etc/cni/net.d": "10-portolan.conflist"} {
			if m.Target != place {
				continue
			}
			if _, err := os.Stat(m.Source + "/" + file); err != nil {
				t.Error(err)
			}
		}
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); err != nil || strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("stopped: %v\n%s", err, log)
	}
}
