package apiserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/lab"
)

// TestLookFirst: what docs/migrate.md has an operator look at before the change, on a
// node of kube-proxy: the commands write nothing, name the few lines that would change,
// and find no fault.
func TestLookFirst(t *testing.T) {
	w := newSwapWorld(t, 1)
	w.launch(0, 0, peerLegacy).written()
	before := w.rulesOf(0)

	cluster := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(cluster, w.export(), 0o644); err != nil {
		t.Fatal(err)
	}
	look := func(command string, more ...string) (string, int) {
		t.Helper()
		args := append([]string{command, "--manifests", cluster, "--cluster-cidr", "10.244.0.0/16,fd00:244::/32",
			"--nodeport-addresses", "0.0.0.0/0,::/0", "--hostname-override", "node1"}, more...)
		cmd := w.Node("node1").Command(t.Context(), lab.Legacy, binary, args...)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	changes, code := look("plan", "--against", "kernel")
	// One line of ours, in each family; other chains only have another order of lines.
	var others []string
	for line := range strings.Lines(changes) {
		line = strings.TrimSpace(line)
		if (strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ")) && !strings.Contains(line, "portolan layout") {
			others = append(others, line)
		}
	}
	if code != 1 || len(others) > 0 || !strings.Contains(changes, "portolan layout") {
		t.Errorf("plan --against kernel ends with %d:\n%s", code, changes)
	}
	if findings, code := look("verify"); code != 0 {
		t.Errorf("verify ends with %d:\n%s", code, findings)
	}
	if all, code := look("verify", "--all"); code != 0 || !strings.Contains(all, "default/web1") {
		t.Errorf("verify --all ends with %d:\n%s", code, all)
	}
	after := w.rulesOf(0)
	if len(before) != len(after) {
		t.Errorf("%d rules before, %d after", len(before), len(after))
	}
	for line := range before {
		if !after[line] {
			t.Errorf("gone: %s", line)
		}
	}
}

// export is what kubectl get services,endpointslices,nodes --all-namespaces -o json
// writes.
func (w *swapWorld) export() []byte {
	w.t.Helper()
	type object = map[string]any
	var items []object
	for path, kind := range map[string]object{
		"/api/v1/services": {"apiVersion": "v1", "kind": "Service"},
		nodesPath:          {"apiVersion": "v1", "kind": "Node"},
		"/apis/discovery.k8s.io/v1/endpointslices": {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice"},
	} {
		var list struct{ Items []object }
		w.call("GET", path, nil, &list)
		for _, o := range list.Items {
			o["apiVersion"], o["kind"] = kind["apiVersion"], kind["kind"]
			items = append(items, o)
		}
	}
	text, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}
