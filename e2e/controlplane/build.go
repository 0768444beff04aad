package controlplane

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// packages are the programs that can be built, and where their main packages are.
var packages = map[string]string{
	"etcd":           "go.etcd.io/etcd/server/v3",
	"kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
	"kube-proxy":     "k8s.io/kubernetes/cmd/kube-proxy",
	"kubectl":        "k8s.io/kubernetes/cmd/kubectl",
}

// ProgramsVariable names an environment variable: a folder with programs that are
// there already. Build then builds nothing.
const ProgramsVariable = "PORTOLAN_PEER_PROGRAMS"

// Build returns a folder with the named programs (etcd, kube-apiserver,
// kube-proxy, kubectl), in the versions of bench/peer/go.mod. What the folder
// lacks is built, which is told to log and takes minutes the first time. The
// folder is in the user's cache and named after what it was built from; of several
// processes one builds and the others wait. The current folder must be inside this
// project.
func Build(ctx context.Context, log io.Writer, names ...string) (string, error) {
	if dir := os.Getenv(ProgramsVariable); dir != "" {
		return dir, nil
	}
	r, err := readRecipe(ctx)
	if err != nil {
		return "", err
	}
	dir, err := r.folder()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("controlplane: cache folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("controlplane: lock of the cache folder: %w", err)
	}
	defer lock.Close() // and lets go of the lock
	if err := flock(lock); err != nil {
		return "", fmt.Errorf("controlplane: lock of the cache folder: %w", err)
	}
	for _, name := range names {
		if err := r.build(ctx, log, dir, name); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return err
		}
	}
}

// A recipe is what the programs are built from.
type recipe struct {
	module     string // folder of the module bench/peer
	sums       []byte // its go.mod and go.sum
	kubernetes string // version, with its v
	etcd       string
}

var required = regexp.MustCompile(`(?m)^\s+(k8s\.io/kubernetes|go\.etcd\.io/etcd/server/v3) (v\S+)(?: // indirect)?$`)

// readRecipe finds what to build, by the pinned versions of bench/peer.
func readRecipe(ctx context.Context) (recipe, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "portolan").Output()
	if err != nil {
		return recipe{}, fmt.Errorf("controlplane: find this project's folder: %w; run it from there, or set %s", err, ProgramsVariable)
	}
	r := recipe{module: filepath.Join(strings.TrimSpace(string(out)), "bench", "peer")}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(r.module, name))
		if err != nil {
			return recipe{}, fmt.Errorf("controlplane: what to build: %w", err)
		}
		r.sums = append(r.sums, text...)
	}
	for _, m := range required.FindAllSubmatch(r.sums, -1) {
		if string(m[1]) == "k8s.io/kubernetes" {
			r.kubernetes = string(m[2])
		} else {
			r.etcd = string(m[2])
		}
	}
	if r.kubernetes == "" || r.etcd == "" {
		return recipe{}, fmt.Errorf("controlplane: %s/go.mod does not require Kubernetes and etcd", r.module)
	}
	return r, nil
}

// folder is where the programs of this recipe belong.
func (r recipe) folder() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("controlplane: cache folder: %w", err)
	}
	sum := sha256.Sum256(append([]byte(runtime.Version()+r.stamps()), r.sums...))
	name := fmt.Sprintf("peer-%s-%x", strings.TrimPrefix(r.kubernetes, "v"), sum[:6])
	return filepath.Join(cache, "portolan", name), nil
}

// stamps are the linker flags that say which version a program is; Kubernetes
// takes itself for v0.0.0 otherwise, and its client for one of no version.
func (r recipe) stamps() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(r.kubernetes, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w"
	for _, p := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=archive",
			p, r.kubernetes, major, minor)
	}
	return flags
}

// build makes one program, if it is not there. It is whole when it is there.
func (r recipe) build(ctx context.Context, log io.Writer, dir, name string) error {
	path := packages[name]
	if path == "" {
		return fmt.Errorf("controlplane: no way to build %q", name)
	}
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); err == nil {
		return nil
	}
	version := r.kubernetes
	if name == "etcd" {
		version = r.etcd
	}
	fmt.Fprintf(log, "controlplane: building %s %s into %s\n", name, version, dir)
	began := time.Now()
	unfinished := program + ".unfinished"
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", "go", "build", "-buildvcs=false", "-trimpath", "-ldflags", r.stamps(), "-o", unfinished, path)
	cmd.Dir = r.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("controlplane: build %s: %w\n%s", name, err, out)
	}
	if err := os.Rename(unfinished, program); err != nil {
		return fmt.Errorf("controlplane: build %s: %w", name, err)
	}
	fmt.Fprintf(log, "controlplane: built %s %s in %.0f s\n", name, version, time.Since(began).Seconds())
	return nil
}
