package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that docs/invariants.md names is there.
func TestInvariantsNameTestsThatExist(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "invariants.md"))
	if err != nil {
		t.Fatal(err)
	}
	room, named := "", 0
	for _, m := range regexp.MustCompile("`([a-z0-9/]+)` (?:Test|Fuzz)|\\b((?:Test|Fuzz)\\w+)").FindAllStringSubmatch(mark(string(text)), -1) {
		if m[1] != "" {
			room = m[1]
			continue
		}
		named++
		if !defines(t, filepath.Join(root, room), m[2]) {
			t.Errorf("docs/invariants.md: %s has no test %s", room, m[2])
		}
	}
	if named < 20 {
		t.Errorf("only %d tests are named", named)
	}
}

// mark doubles the start of the first test behind a room, so that the room and
// the test match apart.
func mark(text string) string {
	return regexp.MustCompile("(`[a-z0-9/]+` )(Test|Fuzz)").ReplaceAllString(text, "$1$2 $2")
}

func defines(t *testing.T, dir, test string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+test+"(") {
			return true
		}
	}
	return false
}
