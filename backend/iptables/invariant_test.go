package iptables

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"portolan/service"
)

// What service decides from. A backend that reads one of these decides again;
// what it needs is in the routes and source ranges of the frontends.
var policyFields = []string{
	"InternalPolicy", "ExternalPolicy", "MasqueradeAll", "LoadBalancerIPs", "ExternalIPs", "AffinityTimeout",
	"Ready", "Serving", "Terminating", "Hints", "Detects", "Any", "Zone",
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
		addrZone := map[ast.Node]bool{} // netip.Addr.Zone(), which is no field
		ast.Inspect(parsed, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok && len(c.Args) == 0 {
				if s, ok := c.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Zone" {
					addrZone[s] = true
				}
			}
			if s, ok := n.(*ast.SelectorExpr); ok && !addrZone[s] && slices.Contains(policyFields, s.Sel.Name) {
				t.Errorf("%s reads %s, which service decides from", positions.Position(s.Pos()), s.Sel.Name)
			}
			return true
		})
	}
	if read < 20 {
		t.Errorf("only %d files of backends were read", read)
	}
}

// The same input gives the same bytes, also from another Backend, in another
// order, and from several goroutines.
func TestInvariant4RenderIsDeterministic(t *testing.T) {
	text := func(backwards bool) string {
		b := New(Options{Family: service.IPv4, MasqueradeBit: 14, Nfacct: Counters{true, true}})
		node, services := everyShape(service.IPv4)
		if backwards {
			slices.Reverse(services)
		}
		objects := b.Base(node)
		for _, svc := range services {
			more, err := b.Render(node, svc)
			if err != nil {
				t.Error(err)
			}
			objects = append(objects, more...)
		}
		return Text(objects)
	}
	want := text(false)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if text(i%2 == 1) != want {
				t.Errorf("run %d differs", i)
			}
		})
	}
	wg.Wait()
}
