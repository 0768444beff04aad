package iptables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/iptables"
	"portolan/service"
)

// TestCountersOfARestartWriteNothing: at the first start it takes restores to find
// out whether the kernel counts; once our rules do, none.
func TestCountersOfARestartWriteNothing(t *testing.T) {
	forVariants(t, func(t *testing.T, tool *iptables.Tool) {
		written := recordRestores(t, tool)
		counters, err := EnsureCounters(t.Context(), tool)
		if err != nil {
			t.Skipf("this kernel does not count: %v", err)
		}
		if written() == 0 {
			t.Fatal("nothing was written at first; the record cannot be right")
		}
		b := New(Options{Family: service.Family(tool.Family), MasqueradeBit: 14, Nfacct: counters, Tool: tool})
		sync := dataplane.NewSync(b)
		sync.Set(dataplane.Owner{}, b.Base(service.Node{}))
		if _, err := sync.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := written()
		again, err := EnsureCounters(t.Context(), tool)
		if err != nil || again != counters {
			t.Errorf("after a restart %+v, %v; before %+v", again, err, counters)
		}
		if n := written() - before; n != 0 {
			t.Errorf("%d restores after a restart", n)
		}
	})
}

// recordRestores puts a program before iptables-restore that notes each call.
func recordRestores(t *testing.T, tool *iptables.Tool) func() int {
	dir := t.TempDir()
	record, program := filepath.Join(dir, "record"), filepath.Join(dir, "restore")
	script := "#!/bin/sh\necho >>" + record + "\nexec " + tool.RestoreProgram + " \"$@\"\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	tool.RestoreProgram = program
	return func() int {
		text, err := os.ReadFile(record)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}
