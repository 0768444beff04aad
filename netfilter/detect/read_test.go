package detect

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestReadEnds: what has no end, and what nobody writes to, is refused.
func TestReadEnds(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(name, []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := readAtMost(name, 5); err != nil || text != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	for _, endless := range []string{name, "/dev/zero"} {
		if _, err := readAtMost(endless, 4); err == nil || !strings.Contains(err.Error(), endless+": more than the 4 bytes that are read") {
			t.Errorf("%s: %v", endless, err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "b.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	texts, err := Read(dir)
	if err == nil || !strings.Contains(err.Error(), "b.txt: not a regular file") || len(texts) != 1 {
		t.Errorf("%v, %v", texts, err)
	}
}
