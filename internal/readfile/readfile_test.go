package readfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAtMost: what is longer, or has no end, is refused by name.
func TestAtMost(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(name, []byte("12345"), 0o644); err != nil {
		t.Fatal(err)
	}
	if text, err := AtMost(name, 5); err != nil || text != "12345" {
		t.Errorf("%q, %v", text, err)
	}
	for _, longer := range []string{name, "/dev/zero"} {
		if _, err := AtMost(longer, 4); err == nil || !strings.Contains(err.Error(), longer+": more than the 4 bytes that are read") {
			t.Errorf("%s: %v", longer, err)
		}
	}
}
