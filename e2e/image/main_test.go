// Package image holds tests of what deploy/ ships: the image's files, and the proxy in
// a container made of exactly those, with the rights that the DaemonSet asks for. There
// is no container engine: the tests do what one does, with the same system calls. They
// need root and skip without.
package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is a folder with the image's files, as deploy/image/rootfs lays them out.
var root string

// TestMain lays out the image once. Called with the name of a container's
// description, it is that container.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == enterArg {
		enter(os.Args[2])
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "portolan-image-")
	if err != nil {
		fmt.Println("e2e/image:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "portolan")
	build := exec.Command("go", "build", "-o", binary, "portolan/cmd/portolan")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	root = filepath.Join(dir, "image")
	for _, cmd := range []*exec.Cmd{build, exec.Command("../../deploy/image/rootfs", binary, root)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("e2e/image: %v: %v\n%s", cmd, err, out)
			return 1
		}
	}
	return m.Run()
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a container, network namespaces and their rules need root")
	}
}
