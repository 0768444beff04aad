package nft

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// inNamespace moves the test to a network namespace of its own. The thread ends
// with the test.
func inNamespace(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace and tables in it need root")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
}

func dial(t testing.TB) *Conn {
	t.Helper()
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
