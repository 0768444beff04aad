package detect

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadEnds: what nobody writes to is refused, and the rest is read.
func TestReadEnds(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(name, []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := Read(dir)
	if err == nil || !strings.Contains(err.Error(), "b.txt: not a regular file") || len(texts) != 1 {
		t.Errorf("%v, %v", texts, err)
	}
}
