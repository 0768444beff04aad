package lab

import (
	"os"
	"path/filepath"
	"testing"
)

// A directory whose process id nobody has here is swept, unless its lab lives in
// another PID namespace: that one holds the lock.
func TestSweepLeavesWhatIsHeld(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, dirPrefix+"99999999-1") // above the kernel's largest
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	held, err := lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	sweep(parent)
	if _, err := os.Stat(dir); err != nil {
		t.Errorf("the directory of a living lab: %v", err)
	}
	held.Close()
	sweep(parent)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory of a dead lab: %v", err)
	}
}
