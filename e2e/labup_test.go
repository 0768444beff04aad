package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A lab that stays up can be looked at and called from other processes, and is
// gone after lab down.
func TestLabUp(t *testing.T) {
	t.Parallel()
	needRoot(t)
	dir := t.TempDir() // where labs are found
	run := func(code int, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary, append([]string{"lab"}, args...)...)
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
			t.Fatalf("lab %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
		}
		return string(out)
	}
	wants := func(text, pattern string) {
		t.Helper()
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("no %q in:\n%s", pattern, text)
		}
	}
	wants(run(2, "walk", "client", "web"), `no lab is up`)
	up := true
	t.Cleanup(func() {
		if up {
			cmd := exec.Command(binary, "lab", "down")
			cmd.Env = append(os.Environ(), "TMPDIR="+dir)
			_ = cmd.Run() // the test has failed already
		}
	})
	wants(run(0, "up", "--pods-per-node", "1", "--podnet", "host-gw"), `It stays up`)
	wants(run(2, "up"), `one is up already`)
	wants(run(0, "walk", "client", "192.0.2.11:30080"), `node1 +eth0 +in +tcp 192\.0\.2\.200:\d+ > 192\.0\.2\.11:30080, 79 bytes\n.*trace says: .* \*`)
	wants(run(1, "walk", "pod-1-1", "default/empty"), `trace says: reject \*\n(.*\n)* +refused`)
	wants(run(2, "walk", "nobody", "web"), `nobody is called "nobody"; there are node1`)
	wants(run(2, "walk", "client", "nothing"), `neither ADDRESS:PORT nor a Service of the lab; there are default/empty`)
	wants(run(0, "traffic", "node1", "web", "--for", "300ms", "--rate", "50"), `pod-1-1 \d+x, pod-2-1 \d+x`)
	wants(run(1, "traffic", "node1", "empty", "--for", "300ms", "--rate", "50"), `calls were not answered`)
	wants(run(0, "shell", "node1", "--", "ip", "route"), `10\.244\.2\.0/24 via 192\.0\.2\.12 dev eth0`)
	bundle := dir + "/dump"
	run(0, "shell", "node1", "--", binary, "dump", bundle)
	manifests, err := filepath.Glob(dir + "/portolan-lab-*/manifests")
	if err != nil || len(manifests) != 1 {
		t.Fatal(err, manifests)
	}
	for _, rules := range [][]string{nil, {"--rules", bundle}} { // the kernel, and what was written of it
		verify := append([]string{"shell", "node1", "--", binary, "verify", "--manifests", manifests[0], "--hostname-override", "node1", "--cluster-cidr", "10.244.0.0/16,fd00:244::/32"}, rules...)
		wants(run(0, verify...), `packets to \d+ frontends followed: 0 errors, 0 warnings`)
	}
	if text, err := os.ReadFile(bundle + "/proxy/failures.json"); err != nil || !strings.Contains(string(text), "portolan.io/v1") {
		t.Errorf("failures of the proxy: %v %s", err, text)
	}
	if err := os.RemoveAll(bundle); err != nil {
		t.Fatal(err)
	}
	traffic := make(chan string, 1)
	go func() {
		cmd := exec.Command(binary, "lab", "traffic", "pod-2-1", "web", "--for", "6s", "--rate", "50")
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		traffic <- fmt.Sprintf("%s%v", out, err)
	}()
	wants(run(0, "add", "node2"), `pod-2-2 answers for default/web`)
	wants(run(0, "drain", "pod-1-1", "--within", "2s"), `pod-1-1 is drained`)
	wants(run(2, "drain", "pod-1-1"), `no pod and no node with pods is called "pod-1-1"`)
	out := <-traffic
	wants(out, `pod-2-2 \d+x\n`)
	wants(out, `x\n<nil>$`) // no call failed
	wants(run(0, "kill", "node1"), `node1 is gone`)
	wants(run(0, "walk", "pod-2-1", "web"), `answered by pod-2-`)
	heard := make(chan string, 1)
	go func() {
		cmd := exec.Command(binary, "lab", "capture", "client", "--count", "1")
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
		out, _ := cmd.CombinedOutput() // it shows in what is missing
		heard <- string(out)
	}()
	for done := false; !done; {
		run(0, "traffic", "client", "192.0.2.12:30080", "--for", "300ms")
		select {
		case out := <-heard:
			wants(out, `client +eth0 +(in|out) `)
			done = true
		default:
		}
	}
	wants(run(0, "down"), `Removed`)
	up = false
	wants(run(2, "down"), `no lab is up`)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of labs: %v %v", left, err)
	}
	did.add("lab", count{scenarios: 1, flows: 4})
}
