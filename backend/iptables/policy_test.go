package iptables

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What service decides from. A backend that reads one of these decides again;
// what it needs is in the routes and source ranges of the frontends.
var policyFields = []string{
	"InternalPolicy", "ExternalPolicy", "MasqueradeAll", "LoadBalancerIPs", "ExternalIPs", "AffinityTimeout",
	"Ready", "Serving", "Terminating", "ZoneHints", "NodeHints", "Detects", "Any", "Zone",
}

func TestInvariant1BackendsDecideNothingAgain(t *testing.T) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		read++
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, file, nil, 0)
		if err != nil {
			continue // the compiler says more
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(policyFields, s.Sel.Name) {
				t.Errorf("%s reads %s, which service decides from", positions.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
	}
	if read < 20 {
		t.Errorf("only %d files of backends were read", read)
	}
}
