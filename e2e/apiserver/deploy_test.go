package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The API server takes the manifests of deploy/, field by field, and the proxy their
// configuration. The rights are proved by every other test: the proxies have no more.
func TestDeploy(t *testing.T) {
	w := newWorld(t)
	text, err := os.ReadFile("../../deploy/base/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var daemonSet map[string]any
	if err := yaml.UnmarshalStrict(text, &daemonSet); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/apps/v1/namespaces/kube-system/daemonsets?dryRun=All&fieldValidation=Strict"
	w.call("POST", path, daemonSet, nil)
	daemonSet["spec"].(map[string]any)["surprise"] = true
	if err := w.server.Call(t.Context(), "POST", path, daemonSet, nil); err == nil {
		t.Error("an unknown field is taken too: the dry run proves nothing")
	}

	written := filepath.Join(t.TempDir(), "config.yaml")
	out, err := exec.Command(binary, "proxy", "--config", "../../deploy/base/config.conf", "--strict-config", "--hostname-override", "node1",
		"--write-config-to", written).CombinedOutput()
	if err != nil || strings.Contains(string(out), "level=WARN") {
		t.Errorf("the configuration: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(written); err != nil || !strings.Contains(string(text), "kubeconfig: /etc/portolan/kubeconfig.conf") {
		t.Errorf("the configuration as written: %v\n%s", err, text)
	}
}
