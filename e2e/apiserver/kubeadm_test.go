package apiserver

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"portolan/e2e/program"
	"portolan/lab"
)

// kubeadm's DaemonSet with another image: the program is called kube-proxy, and has
// the arguments and the files of kubeadm where they always are.
func TestKubeadm(t *testing.T) {
	w := newWorld(t)
	w.web()
	kubeconfig, err := w.server.Kubeconfig(peerToken) // the rights are kube-proxy's, too
	if err != nil {
		t.Fatal(err)
	}
	access, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	settings, err := os.ReadFile("../../config/testdata/kubeadm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	image := t.TempDir()
	for name, text := range map[string][]byte{"config.conf": settings, "kubeconfig.conf": access} {
		if err := os.WriteFile(filepath.Join(image, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(binary, filepath.Join(image, "kube-proxy")); err != nil {
		t.Fatal(err)
	}
	// A mount namespace of its own has the files where the pod has them.
	script := `mount -t tmpfs tmpfs /var/lib && mkdir /var/lib/kube-proxy && mount --bind ` + image + ` /var/lib/kube-proxy &&
		exec ` + image + `/kube-proxy --config=/var/lib/kube-proxy/config.conf --hostname-override=node1`
	p := &proxy{cmd: w.node.Command(context.WithoutCancel(t.Context()), lab.HostVariant, "unshare", "--mount", "sh", "-c", script),
		log: &program.Log{}, w: w, node: w.node, metrics: "http://127.0.0.1:10249/metrics"}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("it said:\n%s", p.log.Tail(60))
		}
	})
	p.healthy()
	w.answers(webIP, "a")
	p.becomes(http.StatusOK)
	w.call("PUT", slicesPath+"/web-1", w.slice("web", "b"), nil)
	w.answers(webIP, "b")
	w.event("Node", "node1", "Starting")
}
