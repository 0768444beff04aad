package apiserver

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"portolan/e2e/program"
	"portolan/lab"
)

// wayToNode2 asks whether node1 has a route to the pods of node2, or has none.
func (w *world) wayToNode2(want bool) func() bool {
	return func() bool {
		out, err := w.Node("node1").Command(w.t.Context(), lab.HostVariant, "ip", "route").CombinedOutput()
		return err == nil && strings.Contains(string(out), "10.244.2.0/24 via 10.244.2.0 dev flannel.1 onlink") == want
	}
}

// Two nodes find each other by the annotations that their agents write with the
// rights of deploy/podnet, their condition is set, a Node that goes takes its ways
// with it, and one that returns is found again.
func TestPodNetwork(t *testing.T) {
	t.Parallel()
	top := lab.Numbered(2, 1, 8080)
	top.PodNetwork, top.PodMTU = true, 1430
	w := newWorldOf(t, top)
	w.grantFrom("../../deploy/podnet/rbac.yaml")
	kubeconfig, err := w.server.Kubeconfig(podnetToken)
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "net-conf.json")
	if err := os.WriteFile(conf, []byte(`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00:244::/32","Backend":{"Type":"vxlan"}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	nodes := []*v1.Node{podNode(lab.NumberedNode(1)), podNode(lab.NumberedNode(2))}
	for _, n := range nodes {
		w.call("POST", nodesPath, n, nil)
		w.call("PUT", nodesPath+"/"+n.Name+"/status", n, nil)
		w.startPodnet(n.Name, kubeconfig, conf)
	}
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
	var now v1.Node
	w.await("the Node is annotated and its network up", func() bool {
		w.call("GET", nodesPath+"/node1", nil, &now)
		up := false
		for _, c := range now.Status.Conditions {
			up = up || c.Type == v1.NodeNetworkUnavailable && c.Status == v1.ConditionFalse && c.Reason == "FlannelIsUp"
		}
		return up && now.Annotations["flannel.alpha.coreos.com/public-ip"] == "192.0.2.11" && strings.HasPrefix(now.Annotations["flannel.alpha.coreos.com/backend-data"], `{"VNI":1,"VtepMAC":"`)
	})
	for _, f := range []struct{ annotation, show, mac string }{
		{"backend-v6-data", "ip -6 neigh show dev flannel-v6.1", "02:66:00:00:00:02"},
		{"backend-data", "ip neigh show dev flannel.1", "02:44:00:00:00:02"},
	} { // one family after the other
		patch := map[string]any{"metadata": map[string]any{"annotations": map[string]string{"flannel.alpha.coreos.com/" + f.annotation: `{"VNI":1,"VtepMAC":"` + f.mac + `"}`}}}
		w.call("PATCH", nodesPath+"/node2", patch, nil)
		words := strings.Fields(f.show)
		w.await(f.annotation+" is followed", func() bool {
			out, err := w.Node("node1").Command(t.Context(), lab.HostVariant, words[0], words[1:]...).CombinedOutput()
			return err == nil && strings.Contains(string(out), "lladdr "+f.mac+" PERMANENT")
		})
		if err := w.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	w.call("DELETE", nodesPath+"/node2", nil, nil)
	w.await("the ways to a Node that went are gone", w.wayToNode2(false))
	w.call("POST", nodesPath, nodes[1], nil)
	w.await("the Node that returned is found", w.wayToNode2(true))
	if err := w.Settle(); err != nil {
		t.Fatal(err)
	}
}

// podNode is a Node as kubelet and the controller manager leave it.
func podNode(spec lab.NodeSpec) *v1.Node {
	n := &v1.Node{}
	n.Name = spec.Name
	for _, p := range spec.Pods {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, p.String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	for _, a := range spec.Addrs {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a.String()})
	}
	return n
}

// startPodnet runs the agent of a node; it ends with the test.
func (w *world) startPodnet(node, kubeconfig, conf string) {
	w.t.Helper()
	said := &program.Log{}
	cmd := w.Node(node).Command(context.WithoutCancel(w.t.Context()), lab.HostVariant, binary, "podnet", "--kubeconfig-file", kubeconfig, "--net-config-path", conf,
		"--hostname-override", node, "--ip-masq", "--subnet-file", filepath.Join(w.t.TempDir(), node+".env"), "--healthz-ip", "127.0.0.1", "--healthz-port", "8081")
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("podnet of %s said:\n%s", node, said.Tail(40))
		}
	})
	client := http.Client{Transport: &http.Transport{DialContext: w.Node(node).DialContext, DisableKeepAlives: true}}
	w.await("podnet of "+node+" is ready", func() bool {
		answer, err := client.Get("http://127.0.0.1:8081/readyz")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// The API server takes the manifests of the pod network, field by field.
func TestDeployPodNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, err := os.ReadFile("../../deploy/podnet/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var daemonSet map[string]any
	if err := yaml.UnmarshalStrict(bytes.TrimSpace(text), &daemonSet); err != nil {
		t.Fatal(err)
	}
	w.call("POST", "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All&fieldValidation=Strict", daemonSet, nil)
}
