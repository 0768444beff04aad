package nfacct

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestEnsure(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace of its own")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with its namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Ensure("a_counter"); errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL) {
			t.Skipf("this kernel has no nfnetlink_acct: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := Ensure(strings.Repeat("x", 32)); err == nil {
		t.Error("a name that is too long was taken")
	}
}
