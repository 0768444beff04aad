package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const nothingLeft = "Removed; nothing is left behind"

// demoRows are what the demo must show: verdict, and the source that was seen.
var demoRows = []string{
	`ClusterIP, 3 endpoints +pod-2-2 .* answered +pod-1-1 \d+x, pod-1-2 \d+x, pod-2-1 \d+x +10\.244\.2\.12 \(the caller's own\)`,
	`NodePort from outside +client .* answered .*10\.244\.1\.0 \(vxlan device of node1\), 10\.244\.1\.1 \(bridge of node1\)`,
	`One packet from pod-2-2 to tcp 10\.96\.0\.10:80`,
	`node2 +flannel\.1 +out +tcp 10\.244\.2\.12:\d+ > 10\.244\.1\.1[12]:8080`,
	`node1 +eth0 +in +udp 192\.0\.2\.12:\d+ > 192\.0\.2\.11:8472, 129 bytes, vxlan 1 with tcp`,
	`Service default/web:tcp, trace says: .* \*`,
	`Hairpin: a pod calls itself +pod-1-1 .* answered +pod-1-1 30x +10\.244\.1\.1 \(bridge of node1\)`,
	`No endpoints +pod-2-2 .* refused`,
	`External policy Local +client .* answered +pod-1-1 \d+x, pod-1-2 \d+x +192\.0\.2\.200 \(the caller's own\)`,
	`at a node without endpoint +client .* timeout`,
}

// TestDemo: `portolan lab run` shows the main job, as root and as an ordinary user,
// and leaves nothing behind.
func TestDemo(t *testing.T) {
	needRoot(t)
	t.Parallel()
	for name, credential := range map[string]*syscall.Credential{"root": nil, "user": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := labRun(t)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
			out, err := cmd.CombinedOutput()
			if credential != nil && strings.Contains(string(out), "gives an ordinary user no namespaces") {
				t.Skip("this kernel gives an ordinary user no namespaces")
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, row := range append(demoRows, nothingLeft) {
				if !regexp.MustCompile(row).Match(out) {
					t.Errorf("no %q in:\n%s", row, out)
				}
			}
			left(t, cmd.Process.Pid)
			did.add("demo", count{scenarios: 1, flows: len(demoRows)})
		})
	}
}

// TestDemoInterrupted: a lab that is interrupted while a command runs in it, or while
// it is at work, removes everything and says so; one that is killed cannot say it.
func TestDemoInterrupted(t *testing.T) {
	needRoot(t)
	t.Parallel()
	for _, c := range []struct {
		name, when string // a line that begins with this has come
		signal     syscall.Signal
		code       int
	}{
		{"at work", "A cluster", syscall.SIGINT, 2},
		{"in command", "command runs", syscall.SIGINT, 2},
		{"terminated", "command runs", syscall.SIGTERM, 2},
		{"killed", "command runs", syscall.SIGKILL, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := labRun(t, "--", "sh", "-c", "echo command runs; exec sleep 600")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			lines := bufio.NewScanner(io.TeeReader(out, &said))
			for lines.Scan() && !strings.HasPrefix(lines.Text(), c.when) {
			}
			children := childrenOf(cmd.Process.Pid)
			if c.when == "command runs" && len(children) < 3 {
				t.Errorf("two proxies and a command should run, not %v", children)
			}
			if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatalf("%v after\n%s", err, &said)
			}
			for lines.Scan() {
			}
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, &said)
			}
			if c.signal == syscall.SIGKILL {
				// Only the working directory is outside the kernel; the next lab removes it.
				for _, dir := range workingDirs(cmd.Process.Pid) {
					os.RemoveAll(dir)
				}
			} else if !strings.Contains(said.String(), nothingLeft) {
				t.Errorf("no %q in:\n%s", nothingLeft, &said)
			}
			left(t, cmd.Process.Pid)
			for _, child := range children {
				if !gone(child) {
					t.Errorf("process %d outlives its lab", child)
				}
			}
			did.add("demo", count{scenarios: 1})
		})
	}
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces and their rules need root")
	}
}

// labRun prepares `portolan lab run`, from a file that everybody may execute.
func labRun(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"lab", "run"}, args...)...)
	cmd.Dir = "/"
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// left checks that no working directory of a process is there any more.
func left(t *testing.T, pid int) {
	t.Helper()
	if dirs := workingDirs(pid); len(dirs) > 0 {
		t.Errorf("left behind: %q", dirs)
	}
}

func workingDirs(pid int) []string {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("portolan-lab-%d-*", pid)))
	return dirs
}

// childrenOf lists the processes that a process has started.
func childrenOf(pid int) []int {
	var list []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			var child int
			if _, err := fmt.Sscan(word, &child); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// gone waits until a process is no more, or is only waited for by its parent.
func gone(pid int) bool {
	return eventually(func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		return fmt.Errorf("process %d is still there", pid)
	}) == nil
}
