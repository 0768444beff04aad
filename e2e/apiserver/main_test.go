// Package apiserver holds tests of `portolan proxy` on a real API server: what is
// written there is what packets in a lab meet. The proxies are who the manifests of
// deploy/ make them, with those rights and no others. The tests need root and skip
// without.
package apiserver

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"portolan/e2e/program"
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
	path, remove, err := program.Binary()
	if err != nil {
		fmt.Println("e2e/apiserver:", err)
		return 1
	}
	defer remove()
	binary = path
	return m.Run()
}
