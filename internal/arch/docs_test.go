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
	heading     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor = regexp.MustCompile(`[^\w\- ]`)
	docLink     = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
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
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join(filepath.Dir(file), m[1])
			check(m[1], target)
			if m[2] != "" && !strings.Contains(anchors(t, target), m[2]+"\n") {
				t.Errorf("%s names %s%s, a heading that is not there", file, m[1], m[2])
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

// anchors are the headings of a document as links name them, a line each: "#exit-codes".
func anchors(t *testing.T, file string) string {
	t.Helper()
	var out strings.Builder
	for _, m := range heading.FindAllStringSubmatch(readFile(t, file), -1) {
		name := notInAnchor.ReplaceAllString(strings.ToLower(m[1]), "")
		out.WriteString("#" + strings.ReplaceAll(name, " ", "-") + "\n")
	}
	return out.String()
}

var goFile = regexp.MustCompile(`(^|[\s(])([a-z0-9_]+\.go)\b`)

// TestRoomsNameTheirFiles: where the comment of a package sends its reader, there is a file.
func TestRoomsNameTheirFiles(t *testing.T) {
	named := 0
	for _, p := range list(t) {
		dir := filepath.Join("../..", strings.TrimPrefix(p.ImportPath, "portolan/"))
		comment, err := os.ReadFile(filepath.Join(dir, "doc.go"))
		if err != nil {
			continue // a room of few files
		}
		for _, m := range goFile.FindAllStringSubmatch(string(comment), -1) {
			named++
			if _, err := os.Stat(filepath.Join(dir, m[2])); err != nil {
				t.Errorf("%s/doc.go names %s, which is not there", dir, m[2])
			}
		}
	}
	if named < 100 {
		t.Errorf("%d files are named", named)
	}
}
