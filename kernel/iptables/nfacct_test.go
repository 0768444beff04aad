package iptables

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCounter: a counter is made once, read, and one that is not there is told.
func TestCounter(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace of its own")
	}
	runtime.LockOSThread() // the thread ends with the test, and the namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
	if _, err := ReadCounter("packets"); !errors.Is(err, os.ErrNotExist) {
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
			t.Skipf("this kernel has no nfnetlink_acct: %v", err)
		}
		t.Fatalf("before it is made: %v", err)
	}
	for range 2 {
		if err := EnsureCounter("packets"); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := ReadCounter("packets"); err != nil || n != 0 {
		t.Errorf("%d, %v", n, err)
	}
}
