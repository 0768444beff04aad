package image

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"portolan/e2e/controlplane"
	"portolan/lab"
)

// The DaemonSet's container as a cluster has it: its files, its ConfigMap, its service
// account's token, and no rights but those that the roles give it.
func TestPodInCluster(t *testing.T) {
	needsRoot(t)
	t.Parallel()
	programs, err := controlplane.Build(t.Context(), os.Stderr, "etcd", "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	control := lab.NodeSpec{Name: "control", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.5"), netip.MustParseAddr("2001:db8::5")}}
	w := newWorld(t, lab.NFT, control)
	const token = "token-of-the-service-account"
	server, err := controlplane.Start(t.Context(), controlplane.Options{
		Programs: programs, Host: &w.Node("control").Host,
		Users: []controlplane.User{{Name: "system:serviceaccount:kube-system:portolan", Token: token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	roles, err := os.ReadFile("../../deploy/base/rbac.yaml")
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
	c := w.clusterPod(server, token)
	c.Filter = filter(t)
	w.serves(c)
}

// clusterPod is the DaemonSet's container with the configuration of deploy/base.
func (w world) clusterPod(server *controlplane.Server, token string) container {
	w.t.Helper()
	spec := daemonSet(w.t, "../../deploy/base/daemonset.yaml").Spec.Template.Spec
	files := map[string]string{"config.conf": w.config("")}
	kubeconfig, err := os.ReadFile("../../deploy/base/kubeconfig.conf")
	if err != nil {
		w.t.Fatal(err)
	}
	files["kubeconfig.conf"] = strings.Replace(string(kubeconfig), "https://control-plane.example:6443", server.URL(), 1)
	c := podOf(w.t, spec, spec.Containers[0], "node1", files)
	account := w.t.TempDir()
	for file, text := range map[string]string{"token": token, "ca.crt": string(server.CA())} {
		if err := os.WriteFile(account+"/"+file, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	c.Mounts = append(c.Mounts, mount{account, "/var/run/secrets/kubernetes.io/serviceaccount", true})
	return c
}
