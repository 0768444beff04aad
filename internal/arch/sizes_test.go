package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// A file and a function are read at one go.
const (
	fileLines     = 400
	functionLines = 60
)

// TestSizes: files and functions stay within their sizes.
func TestSizes(t *testing.T) {
	const root = "../.."
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		files++
		faults, err := oversized(name, readFile(t, name))
		for _, f := range faults {
			t.Error(f)
		}
		return err
	})
	if err != nil || files < 100 {
		t.Errorf("%d files: %v", files, err)
	}
}

// oversized tells of a file and of its functions that are too long.
func oversized(name, text string) (faults []string, err error) {
	if lines := strings.Count(text, "\n"); lines >= fileLines {
		faults = append(faults, fmt.Sprintf("%s has %d lines; fewer than %d are read at one go", name, lines, fileLines))
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		if lines := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; lines > functionLines {
			faults = append(faults, fmt.Sprintf("%s: %s has %d lines; at most %d are read at one go", set.Position(f.Pos()), f.Name.Name, lines, functionLines))
		}
	}
	return faults, nil
}

func TestOversizedIsSeen(t *testing.T) {
	long := "package x\n\nfunc f() {\n" + strings.Repeat("\tg()\n", functionLines) + "}\n"
	if faults, err := oversized("x.go", long); err != nil || len(faults) != 1 {
		t.Errorf("a long function: %q, %v", faults, err)
	}
	if faults, err := oversized("x.go", "package x\n"+strings.Repeat("// line\n", fileLines)); err != nil || len(faults) != 1 {
		t.Errorf("a long file: %q, %v", faults, err)
	}
}
