package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"portolan/config"
	"portolan/kernel/iptables"
	"portolan/service"
)

// --proxy-mode=ipvs, and --ipvs-scheduler, which is rr unless it is given.
func TestR161Flags(t *testing.T) {
	for want, args := range map[string][]string{"rr": {"--proxy-mode=ipvs"}, "lc": {"--proxy-mode=ipvs", "--ipvs-scheduler=lc"}} {
		set := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
		flags := config.AddFlags(set)
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		c, _, err := flags.Config(config.FileFirst)
		if err != nil || c.Mode != config.IPVS {
			t.Fatalf("%v: %s, %v", args, c.Mode, err)
		}
		if got := ipvsOptions(c, service.IPv4).Scheduler; got != want {
			t.Errorf("%v: scheduler %q", args, got)
		}
	}
}

// TestMissingProgram: in ipvs mode, too, a family whose programs are not there is left
// out, and it is said which, before anything depends on them.
func TestMissingProgram(t *testing.T) {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		t.Skip("this host has no IPv6, which is left out anyway")
	}
	dir := t.TempDir()
	for _, name := range []string{"iptables-nft", "iptables-nft-save", "iptables-nft-restore", "ip6tables-nft-save"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho 'iptables v1.8.9 (nf_tables)'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	host, err := iptables.Detect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []config.Mode{config.IPVS, config.IPTables} {
		var log strings.Builder
		tools, err := usableTools(t.Context(), host, mode, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || len(tools) != 1 || tools[service.IPv4] == nil {
			t.Errorf("%s: tools of %v; %v", mode, tools, err)
		}
		if !strings.Contains(log.String(), "family=IPv6") || !strings.Contains(log.String(), "ip6tables-nft-restore") {
			t.Errorf("%s: it is not said what is missing: %s", mode, log.String())
		}
	}
}
