package lab

import (
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// ownNetwork is the network namespace of the thread that asks.
const ownNetwork = "/proc/thread-self/ns/net"

// namespace is one anonymous network namespace, held by a file descriptor. Nothing
// is mounted: the kernel frees the namespace when its last holder is gone.
type namespace struct {
	home *os.File // the namespace this process started in
	file *os.File

	mu     sync.Mutex
	keeper chan func() // see keep; nil until first needed
	closed bool
}

// newNamespace makes an empty namespace. home is where threads go back to.
func newNamespace(home *os.File) (*namespace, error) {
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("lab: new network namespace: %w", err)
	}
	file, err := os.Open(ownNetwork)
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked and dies with its goroutine; nobody else gets it.
		return nil, fmt.Errorf("lab: leave the new namespace: %w", back)
	}
	runtime.UnlockOSThread()
	if err != nil {
		return nil, fmt.Errorf("lab: hold the new namespace: %w", err)
	}
	return &namespace{home: home, file: file}, nil
}

// do runs fn on a thread that is inside the namespace. Sockets that fn makes and
// files under /proc/sys/net that it opens are those of the namespace. fn must not
// start goroutines that do either, and must not call do.
func (n *namespace) do(fn func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("lab: enter a namespace: %w", err)
	}
	err := fn()
	if back := unix.Setns(int(n.home.Fd()), unix.CLONE_NEWNET); back != nil {
		return fmt.Errorf("lab: leave a namespace: %w", back) // locked for good, see newNamespace
	}
	runtime.UnlockOSThread()
	return err
}

// keep runs fn like do, but always on the same thread, which lives as long as the
// namespace. Child processes are started there: a child asks the kernel to be
// killed when its parent dies, and for the kernel the parent is the thread.
func (n *namespace) keep(fn func() error) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return fmt.Errorf("lab: the namespace is closed")
	}
	if n.keeper == nil {
		n.keeper = make(chan func())
		go serveThread(n.keeper)
	}
	done := make(chan error, 1)
	n.keeper <- func() { done <- n.do(fn) }
	n.mu.Unlock()
	return <-done
}

// serveThread runs work on one thread until work is closed; then the thread ends.
func serveThread(work <-chan func()) {
	runtime.LockOSThread()
	for fn := range work {
		fn()
	}
}

// close lets go of the namespace; twice is fine.
func (n *namespace) close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	if n.keeper != nil {
		close(n.keeper)
	}
	return n.file.Close()
}

// setSysctls writes files under /proc/sys inside the namespace, in order. A file
// that is not there is passed over: kernels differ in what they offer.
func (n *namespace) setSysctls(settings []sysctl) error {
	return n.do(func() error {
		for _, s := range settings {
			err := os.WriteFile("/proc/sys/"+s.path, []byte(s.value), 0)
			if err != nil && !os.IsNotExist(err) && !s.optional {
				return fmt.Errorf("lab: set sysctl %s to %s: %w", s.path, s.value, err)
			}
		}
		return nil
	})
}

type sysctl struct {
	path, value string
	optional    bool // nicer with it, works without
}
