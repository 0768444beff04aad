package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Rooms, and files of rooms, that compute and do nothing else: they do not log,
// read clocks or take contexts.
var pure = []string{
	"service/*.go", "netfilter/*.go", "trace/*.go", "trace/rawbytes/*.go", "verify/*.go",
	"dataplane/want.go", "dataplane/compose.go", "dataplane/object.go", "dataplane/plan.go",
	"backend/*/render.go",
	"conntrack/index.go", "conntrack/stale.go", "conntrack/scope.go", "conntrack/load.go", "conntrack/shed.go",
	"localhost/ports.go", "localhost/table.go", "slowstart/stages.go",
}

// Pure rooms do not log, read clocks or take contexts.
func TestPureRooms(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	for _, pattern := range pure {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			files++
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range impure(t, string(text)) {
				t.Errorf("%s: %s", name, fault)
			}
		}
	}
	if files < 20 {
		t.Errorf("only %d files were looked at", files)
	}
}

func TestImpureIsSeen(t *testing.T) {
	for _, text := range []string{`import "log/slog"`, `import "context"`, `import "time"; var now = time.Now()`} {
		if len(impure(t, "package p; "+text)) == 0 {
			t.Errorf("%s is taken for pure", text)
		}
	}
}

func impure(t *testing.T, text string) (faults []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range file.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		if slices.Contains([]string{"log", "log/slog", "context", "os", "os/exec", "net/http"}, path) {
			faults = append(faults, "imports "+path)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "NewTimer", "Sleep"}, sel.Sel.Name) {
				faults = append(faults, "calls time."+sel.Sel.Name)
			}
		}
		return true
	})
	return faults
}
