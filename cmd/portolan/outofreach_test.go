package main

import (
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"portolan/config"
	"portolan/internal/netnstest"
	"portolan/kernel/iptables"
	"portolan/service"
)

// TestRulesOutOfReach: an image without the programs of iptables, on a node where
// kube-proxy's rules are: nobody says that there are none, or that they are gone.
func TestRulesOutOfReach(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.NFT} {
		t.Run(string(variant), func(t *testing.T) {
			tool := iptables.NewTool(iptables.IPv6, variant)
			if _, err := exec.LookPath(tool.RestoreProgram); err != nil {
				t.Skipf("%s is not installed", tool.RestoreProgram)
			}
			t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
			netnstest.Do(t, func() {
				if err := tool.Restore(t.Context(), []byte("*nat\n:KUBE-SERVICES - [0:0]\n-A OUTPUT -j KUBE-SERVICES\nCOMMIT\n")); err != nil {
					t.Error(err)
				}
				if err := outOfReach(t.Context(), service.IPv6); err != nil {
					t.Errorf("with the programs at hand: %v", err)
				}
				t.Setenv("PATH", t.TempDir())
				names := func(what, text string) {
					t.Helper()
					for _, want := range []string{"IPv6", "variant " + string(variant), tool.RestoreProgram} {
						if !strings.Contains(text, want) {
							t.Errorf("%s: %q does not name %q", what, text, want)
						}
					}
				}
				if err := cleanup(t.Context(), true, io.Discard); err == nil {
					t.Error("cleanup is content")
				} else {
					names("cleanup", err.Error())
				}
				if _, err := removeOthers(t.Context(), service.IPv6, config.NFTables, ""); err == nil {
					t.Error("the takeover is content")
				} else {
					names("takeover", err.Error())
				}
				if _, err := removeOthers(t.Context(), service.IPv4, config.NFTables, ""); err != nil {
					t.Errorf("takeover of the other family: %v", err)
				}
				_, reason := chooseMode(t.Context())
				names("mode", reason)
			})
		})
	}
}

func TestProgramsOfRootAreFound(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/local/bin:/usr/bin:/bin": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
		"/sbin:/bin":                   "/sbin:/bin:/usr/local/sbin:/usr/sbin",
		"":                             "/usr/local/sbin:/usr/sbin:/sbin",
	} {
		if got := withRootsPrograms(path); got != want {
			t.Errorf("%q: %q, not %q", path, got, want)
		}
	}
}
