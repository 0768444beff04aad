// Package netnstest gives a test a network namespace of its own, in which it is the
// only one, and of which the machine knows nothing.
package netnstest

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Enter moves the goroutine of the test to a new network namespace, with nothing in
// it but a loopback device that is down. The goroutine keeps its thread to itself,
// and both end with the test; those it starts, subtests too, are not in the
// namespace. Enter skips the test where no namespace is to be had.
func Enter(t testing.TB) {
	t.Helper()
	needRoot(t)
	runtime.LockOSThread() // for good: so the thread ends with the goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("no network namespace: %v", err)
	}
}

// Do runs f in a new network namespace, on a goroutine and a thread of their own that
// end with it, and returns when f has ended, be it by FailNow or SkipNow. It skips the
// test where no namespace is to be had.
func Do(t testing.TB, f func()) {
	t.Helper()
	needRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // see Enter
		err := unix.Unshare(unix.CLONE_NEWNET)
		defer func() { done <- err }()
		if err == nil {
			f()
		}
	}()
	if err := <-done; err != nil {
		t.Skipf("no network namespace: %v", err)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace of the test's own needs root")
	}
}
