package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Every code is explained in docs/findings.md, with an example and a fix, and nothing
// else is.
func TestCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/findings.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^### ([a-z0-9-]+)$`).FindAllStringSubmatch(string(text), -1) {
		documented[m[1]] = true
	}
	for section := range strings.SplitSeq(string(text), "\n### ") {
		name, body, _ := strings.Cut(section, "\n")
		for _, part := range []string{"Example: ", "Fix: "} {
			if documented[name] && !strings.Contains(strings.ReplaceAll(body, "\n", " "), part) {
				t.Errorf("docs/findings.md: %s has no %q", name, part)
			}
		}
	}
	codes := declaredCodes(t)
	if len(codes) < 10 {
		t.Fatalf("only %d codes", len(codes))
	}
	for c := range codes {
		if !documented[c] {
			t.Errorf("docs/findings.md does not explain %s", c)
		}
	}
	for c := range documented {
		if !codes[c] {
			t.Errorf("docs/findings.md explains %s, which is no code", c)
		}
	}
}

// declaredCodes are the constants of type Code.
func declaredCodes(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			for _, v := range spec.Values {
				s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				out[s] = true
			}
		}
		return true
	})
	return out
}
