package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	docLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	// docRoom is a file or folder of this project in backquotes, such as `docs/health.md`.
	docRoom = regexp.MustCompile("`((?:docs|deploy|examples|e2e|testdata|tools|bench)/[A-Za-z0-9_./-]+)`")
)

// TestDocsLinks: what the documents name is there.
func TestDocsLinks(t *testing.T) {
	const root = "../.."
	links := 0
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".md":
			return nil
		}
		text := readFile(t, file)
		check := func(name, target string) {
			links++
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s names %s, which is not there", file, name)
			}
		}
		for _, m := range docLink.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(m[1], "://") {
				check(m[1], filepath.Join(filepath.Dir(file), m[1]))
			}
		}
		for _, m := range docRoom.FindAllStringSubmatch(text, -1) {
			check(m[1], filepath.Join(root, m[1]))
		}
		return nil
	})
	if err != nil || links < 20 {
		t.Errorf("%d links found: %v", links, err)
	}
}
