package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"portolan":   func() { os.Exit(run(context.Background(), os.Args)) },
		"kube-proxy": func() { os.Exit(run(context.Background(), os.Args)) },
	})
}

// The commands as a user sees them: one scenario a file.
func TestScripts(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			e.Setenv("EXAMPLES", filepath.Join(root, "examples"))
			e.Setenv("DUMPS", filepath.Join(root, "testdata", "dumps"))
			return nil
		},
	})
}
