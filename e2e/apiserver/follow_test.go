package apiserver

import (
	"net/http"
	"testing"

	v1 "k8s.io/api/core/v1"

	"portolan/lab"
)

const webIP = "10.96.0.17"

// web makes a Service that the pod a answers for, and the Node.
func (w *world) web() {
	w.t.Helper()
	w.call("POST", nodesPath, w.newNode("node1"), nil)
	w.call("POST", servicesPath, newService("web", webIP), nil)
	w.call("POST", slicesPath, w.slice("web", "a"), nil)
}

var modes = []string{"iptables", "nftables"}

// Packets follow what happens to a Service and to its slice.
func TestFollow(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.web()
			w.start(proxyToken, "--proxy-mode", mode, "--iptables-min-sync-period", "100ms", "--hostname-override", "node1").healthy()
			w.answers(webIP, "a")

			w.call("PUT", slicesPath+"/web-1", w.slice("web", "b"), nil)
			t.Logf("%s: another endpoint after %v", mode, w.answers(webIP, "b"))

			w.call("DELETE", slicesPath+"/web-1", nil, nil)
			w.becomes(webIP, lab.Refused)
			w.call("POST", slicesPath, w.slice("web", "c"), nil)
			w.answers(webIP, "c")

			// A slice that names another Service leaves the first one.
			w.call("POST", servicesPath, newService("other", "10.96.0.18"), nil)
			moved := w.slice("other", "c")
			moved.Name = "web-1"
			w.call("PUT", slicesPath+"/web-1", moved, nil)
			w.answers("10.96.0.18", "c")
			w.becomes(webIP, lab.Refused)

			// Somebody else serves it, and hands it back.
			label := func(value any) map[string]any {
				return map[string]any{"metadata": map[string]any{"labels": map[string]any{"service.kubernetes.io/service-proxy-name": value}}}
			}
			w.call("PATCH", servicesPath+"/other", label("somebody"), nil)
			w.becomes("10.96.0.18", gone(mode))
			w.call("PATCH", servicesPath+"/other", label(nil), nil)
			w.answers("10.96.0.18", "c")

			w.call("DELETE", servicesPath+"/other", nil, nil)
			w.becomes("10.96.0.18", gone(mode))
		})
	}
}

// gone is what a caller of an address meets that is for Services and that none has:
// the way out of the lab says so, or in nftables mode nobody.
func gone(mode string) lab.Verdict {
	if mode == "nftables" {
		return lab.TimedOut
	}
	return lab.Unreachable
}

// ServiceCIDRs are followed: what goes to an address of one that no Service has is
// dropped in nftables mode. The first one is the API server's own.
func TestServiceCIDRs(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.start(proxyToken, "--proxy-mode", "nftables", "--hostname-override", "node1").healthy()
	w.answers(webIP, "a")
	w.becomes("10.96.0.77", lab.TimedOut)
	const outside = "198.51.100.77" // the lab's client has a route there by node1
	w.becomes(outside, lab.Unreachable)

	const path = "/apis/networking.k8s.io/v1/servicecidrs"
	w.call("POST", path, map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
		"metadata": map[string]any{"name": "more"}, "spec": map[string]any{"cidrs": []string{"198.51.100.0/24"}}}, nil)
	w.becomes(outside, lab.TimedOut)
	w.answers(webIP, "a")
	w.call("DELETE", path+"/more", nil, nil)
	w.becomes(outside, lab.Unreachable)
}

// The own Node is followed without a new start.
func TestNode(t *testing.T) {
	w := newWorld(t)
	w.web()
	w.call("PUT", slicesPath+"/web-1", w.slice("web", "a@near", "b@far"), nil)
	p := w.start(proxyToken, "--proxy-mode", "nftables", "--hostname-override", "node1").healthy()
	w.answers(webIP, "a")

	w.call("PATCH", nodesPath+"/node1", map[string]any{"metadata": map[string]any{"labels": map[string]any{v1.LabelTopologyZone: "far"}}}, nil)
	w.answers(webIP, "b")

	taints := func(list ...v1.Taint) map[string]any { return map[string]any{"spec": map[string]any{"taints": list}} }
	w.call("PATCH", nodesPath+"/node1", taints(v1.Taint{Key: "ToBeDeletedByClusterAutoscaler", Effect: v1.TaintEffectNoSchedule}), nil)
	p.becomes(http.StatusServiceUnavailable)
	w.call("PATCH", nodesPath+"/node1", taints(), nil)
	p.becomes(http.StatusOK)

	w.call("DELETE", nodesPath+"/node1", nil, nil)
	p.becomes(http.StatusServiceUnavailable)
	w.answers(webIP, "b") // a deleted Node keeps its zone
	w.call("POST", nodesPath, w.newNode("node1"), nil)
	p.becomes(http.StatusOK)
	w.answers(webIP, "a")
}

// A name that no Node has is told at once; when the Node comes, all goes on.
func TestNoNode(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(proxyToken, "--proxy-mode", "nftables", "--hostname-override", "nobody")
	p.says("no Node has the name of this host")
	w.call("POST", nodesPath, w.newNode("nobody"), nil)
	p.healthy()
	w.answers(webIP, "a")
}

// Who has no rights is told which ones to grant, and needs no new start when they
// are.
func TestRights(t *testing.T) {
	w := newWorld(t)
	w.web()
	p := w.start(nobodyToken, "--proxy-mode", "nftables", "--hostname-override", "node1")
	for _, text := range []string{"watch services is not allowed", "list endpointslices is not allowed", `resources [nodes] of apiGroups`} {
		p.says(text)
	}
	binding := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
		"metadata": map[string]any{"name": "nobody"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "portolan"},
		"subjects": []any{map[string]any{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "nobody"}},
	}
	w.call("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding, nil)
	p.healthy()
	w.answers(webIP, "a")
	p.says("the API server answers again")
}
