package ipvs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portolan/dataplane"
	"portolan/kernel/ipvs"
	"portolan/service"
)

// ipvs mode needs the modules ip_vs, its schedulers and nf_conntrack_ipv4, which Linux
// 4.19 made one with nf_conntrack. The list of loaded modules says nothing about those
// that are built in, so it is not asked: what is needed is tried, and a refusal names the
// module.
func TestR160WhatTheKernelLacks(t *testing.T) {
	if text := ipvs.ErrMissing.Error(); !strings.Contains(text, "module ip_vs") {
		t.Error(text)
	}
	inNamespace(t)
	b := live(t, service.IPv4)
	for _, scheduler := range []string{"rr", "wrr", "sh"} {
		b.options.Scheduler = scheduler
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", scheduler, err)
		}
	}
	b.options.Scheduler = "nosuch"
	err := b.Probe(t.Context())
	if err == nil || !strings.Contains(err.Error(), "module ip_vs_nosuch") || errors.Is(err, ipvs.ErrMissing) {
		t.Errorf("a scheduler that no module has: %v", err)
	}
}

// TestProbeStarts: one program tries what rules match with, and none when rules of ours
// do so already. A program that does not take one thing has it named, and only it.
func TestProbeStarts(t *testing.T) {
	inNamespace(t)
	f := families[0]
	b := live(t, f.Family)
	log := countPrograms(t, b)
	probe := func(when string, want int) error {
		if err := os.Remove(log); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		err := b.Probe(t.Context())
		ran, _ := os.ReadFile(log)
		if n := strings.Count(string(ran), "\n"); n != want {
			t.Errorf("%s: %d programs, not %d:\n%s", when, n, want, ran)
		}
		return err
	}
	if err := probe("at first", 1); err != nil {
		t.Error(err)
	}
	tool := b.options.Kernel.Tool
	able := tool.RestoreProgram
	tool.RestoreProgram = filepath.Join(t.TempDir(), "restore")
	text := "#!/bin/sh\nin=$(cat)\ncase $in in *physdev*) echo 'Error occurred at line: 3' >&2; exit 2 ;; esac\necho \"$in\" | exec " + able + " \"$@\"\n"
	if err := os.WriteFile(tool.RestoreProgram, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	err := probe("one thing refused", 2)
	if err == nil || !strings.Contains(err.Error(), "xt_physdev") || strings.Contains(err.Error(), "NAT") || strings.Contains(err.Error(), "xt_set") {
		t.Errorf("one thing refused: %v", err)
	}
	tool.RestoreProgram = able
	sync := dataplane.NewSync(b)
	program(t, b, sync, self(f), f.Web(1, 2))
	apply(t, sync)
	if err := probe("rules of ours there", 0); err != nil {
		t.Error(err)
	}
}
