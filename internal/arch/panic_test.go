package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mayRecover are the files that catch a panic: to make it louder.
var mayRecover = []string{"healthcheck/panic.go"}

// TestNobodySwallowsPanics: a panic in any goroutine ends the process. A proxy that
// lost one of them, or that goes on with what it left behind, is worse than none:
// the rules stay, and whoever started it starts it again.
func TestNobodySwallowsPanics(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		short, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			return err
		}
		files++
		if swallows(file) && !slices.Contains(mayRecover, filepath.ToSlash(short)) {
			t.Errorf("%s recovers from panics", short)
		}
		return nil
	})
	if err != nil || files < 200 {
		t.Errorf("%d files were looked at: %v", files, err)
	}
}

func swallows(file *ast.File) (found bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name, is := n.Fun.(*ast.Ident)
			found = found || is && name.Name == "recover"
		case *ast.SelectorExpr:
			found = found || n.Sel.Name == "ReallyCrash" // of apimachinery: whether its goroutines swallow
		}
		return true
	})
	return found
}

func TestSwallowingIsSeen(t *testing.T) {
	for _, text := range []string{"func f() { defer func() { recover() }() }", "func f() { runtime.ReallyCrash = false }"} {
		file, err := parser.ParseFile(token.NewFileSet(), "", "package p; "+text, 0)
		if err != nil || !swallows(file) {
			t.Errorf("%s is not seen: %v", text, err)
		}
	}
}
