package iptables

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"portolan/internal/netnstest"
)

// TestCounter: a counter is made once, read, and one that is not there is told.
func TestCounter(t *testing.T) {
	netnstest.Enter(t)
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
