package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"portolan/e2e/program"
)

// TestLabUp: a lab that stays up can be looked at and called from other processes, and
// is gone after lab down.
func TestLabUp(t *testing.T) {
	t.Parallel()
	needRoot(t)
	l := labProgram{t, t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			_ = l.command("down").Run() // unless it is down
		}
	})
	l.says(2, `no lab is up`, "walk", "client", "web")
	l.says(0, `It stays up`, "up", "--pods-per-node", "1", "--podnet", "host-gw")
	l.says(2, `one is up already`, "up")
	l.isLookedAt()
	l.isVerified()
	l.changesUnderTraffic()
	l.isListenedTo()
	l.says(0, `Removed`, "down")
	l.says(2, `no lab is up`, "down")
	if left, err := os.ReadDir(l.dir); err != nil || len(left) > 0 {
		t.Errorf("left in the folder of labs: %v %v", left, err)
	}
	did.add("lab", count{scenarios: 1, flows: 4})
}

// labProgram is `portolan lab`; labs are found in a folder.
type labProgram struct {
	t   *testing.T
	dir string
}

func (l labProgram) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), 2*time.Minute) // down comes after the end
	l.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, append([]string{"lab"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+l.dir)
	return cmd
}

// says runs the program, which ends with that exit code and says something like pattern.
func (l labProgram) says(code int, pattern string, args ...string) {
	l.t.Helper()
	cmd := l.command(args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		l.t.Fatalf("lab %s: %v, want exit code %d\n%s", strings.Join(args, " "), err, code, out)
	}
	l.wants(string(out), pattern)
}

func (l labProgram) wants(text, pattern string) {
	l.t.Helper()
	if !regexp.MustCompile(pattern).MatchString(text) {
		l.t.Errorf("no %q in:\n%s", pattern, text)
	}
}

// begin starts the program, whose end the test awaits.
func (l labProgram) begin(args ...string) (*exec.Cmd, *program.Log) {
	l.t.Helper()
	cmd, log := l.command(args...), &program.Log{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	return cmd, log
}

func (l labProgram) isLookedAt() {
	l.t.Helper()
	l.says(0, `node1 +eth0 +in +tcp 192\.0\.2\.200:\d+ > 192\.0\.2\.11:30080, 79 bytes\n.*trace says: .* \*`, "walk", "client", "192.0.2.11:30080")
	l.says(1, `trace says: reject \*\n(.*\n)* +refused`, "walk", "pod-1-1", "default/empty")
	l.says(2, `nobody is called "nobody"; there are node1`, "walk", "nobody", "web")
	l.says(2, `neither ADDRESS:PORT nor a Service of the lab; there are default/empty`, "walk", "client", "nothing")
	l.says(0, `pod-1-1 \d+x, pod-2-1 \d+x`, "traffic", "node1", "web", "--for", "300ms", "--rate", "50")
	l.says(1, `calls were not answered`, "traffic", "node1", "empty", "--for", "300ms", "--rate", "50")
	l.says(0, `10\.244\.2\.0/24 via 192\.0\.2\.12 dev eth0`, "shell", "node1", "--", "ip", "route")
}

// isVerified holds the kernel of a node, and then a dump of it, against the manifests.
func (l labProgram) isVerified() {
	l.t.Helper()
	bundle := l.dir + "/dump"
	l.says(0, ``, "shell", "node1", "--", binary, "dump", bundle)
	manifests, err := filepath.Glob(l.dir + "/portolan-lab-*/manifests")
	if err != nil || len(manifests) != 1 {
		l.t.Fatal(err, manifests)
	}
	verify := []string{"shell", "node1", "--", binary, "verify", "--manifests", manifests[0], "--hostname-override", "node1", "--cluster-cidr", "10.244.0.0/16,fd00:244::/32"}
	const right = `packets to \d+ frontends followed: 0 errors, 0 warnings`
	l.says(0, right, verify...)
	l.says(0, right, append(verify, "--rules", bundle)...)
	if text, err := os.ReadFile(bundle + "/proxy/failures.json"); err != nil || !strings.Contains(string(text), "portolan.io/v1") {
		l.t.Errorf("failures of the proxy: %v %s", err, text)
	}
	if err := os.RemoveAll(bundle); err != nil {
		l.t.Fatal(err)
	}
}

// changesUnderTraffic adds, drains and kills while a pod calls.
func (l labProgram) changesUnderTraffic() {
	l.t.Helper()
	traffic, answers := l.begin("traffic", "pod-2-1", "web", "--rate", "20")
	l.says(0, `pod-2-2 answers for default/web`, "add", "node2")
	l.says(0, `pod-1-1 is drained`, "drain", "pod-1-1", "--within", "2s")
	l.says(2, `no pod and no node with pods is called "pod-1-1"`, "drain", "pod-1-1")
	if err := eventually(func() error {
		if !answers.Has("pod-2-2") {
			return fmt.Errorf("pod-2-2 does not answer:\n%s", answers)
		}
		return nil
	}); err != nil {
		l.t.Error(err)
	}
	if err := traffic.Process.Signal(syscall.SIGINT); err != nil {
		l.t.Error(err)
	}
	if err := traffic.Wait(); err != nil { // it tells whether a call failed
		l.t.Errorf("traffic: %v\n%s", err, answers)
	}
	l.says(0, `node1 is gone`, "kill", "node1")
	l.says(0, `answered by pod-2-`, "walk", "pod-2-1", "web")
}

// isListenedTo calls until a capture has heard it.
func (l labProgram) isListenedTo() {
	l.t.Helper()
	capture, heard := l.begin("capture", "client", "--count", "1")
	ended := make(chan error, 1)
	go func() { ended <- capture.Wait() }()
	for {
		l.says(0, ``, "traffic", "client", "192.0.2.12:30080", "--for", "300ms")
		select {
		case err := <-ended:
			if err != nil {
				l.t.Error(err)
			}
			l.wants(heard.String(), `client +eth0 +(in|out) `)
			return
		default:
		}
	}
}
