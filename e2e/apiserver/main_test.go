// Package apiserver holds tests of `portolan proxy` on a real API server: what is
// written there is what packets in a lab meet. The proxies are who the manifests of
// deploy/ make them, with those rights and no others. The tests need root and skip
// without.
package apiserver

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the portolan under test.
var binary string

// TestMain builds the binary once; PORTOLAN_E2E_BINARY names one to test instead.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("e2e/apiserver: skipped: network namespaces and their rules need root")
		return m.Run()
	}
	// Labs wait for packets more than they compute, so more of them than cores.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Println("e2e/apiserver:", err)
		return 1
	}
	if binary = os.Getenv("PORTOLAN_E2E_BINARY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "portolan-e2e-")
	if err != nil {
		fmt.Println("e2e/apiserver:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "portolan")
	if out, err := exec.Command("go", "build", "-o", binary, "portolan/cmd/portolan").CombinedOutput(); err != nil {
		fmt.Printf("e2e/apiserver: build the binary under test: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
