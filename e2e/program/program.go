// Package program is the portolan that is tested: where it is, and what it says.
package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Binary is the path of the portolan under test: the one that PORTOLAN_E2E_BINARY
// names, else one that it builds in a folder of its own, which every user may read
// and remove removes.
func Binary() (path string, remove func(), err error) {
	if path = os.Getenv("PORTOLAN_E2E_BINARY"); path != "" {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "portolan-e2e-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, "portolan")
	if err := os.Chmod(dir, 0o755); err != nil { // ordinary users run it too
		remove()
		return "", nil, err
	}
	if out, err := exec.Command("go", "build", "-o", path, "portolan/cmd/portolan").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build the binary under test: %w\n%s", err, out)
	}
	return path, remove, nil
}

// Log keeps what a program writes, and may be read meanwhile. The zero Log is empty.
type Log struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write takes all of it.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Has tells whether a text was written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }

// Tail is the last lines of it, that many at most, without the line end of the last.
func (l *Log) Tail(most int) string {
	lines := strings.Split(strings.TrimSuffix(l.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}
