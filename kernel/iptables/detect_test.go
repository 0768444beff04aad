package iptables

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlainVariant: iptables is of the variant whose program is the same file, which no
// program is started for; a wrapper that all names lead to is asked.
func TestPlainVariant(t *testing.T) {
	for _, c := range []struct {
		name  string
		links map[string]string // of names to files
		want  Variant
	}{
		{"nft", map[string]string{"iptables": "broken", "iptables-nft": "broken", "iptables-legacy": "wrapper"}, NFT},
		{"legacy", map[string]string{"iptables": "broken", "iptables-legacy": "broken", "iptables-nft": "wrapper"}, Legacy},
		{"a wrapper of its own", map[string]string{"iptables": "wrapper", "iptables-legacy": "broken", "iptables-nft": "broken"}, Legacy},
		{"a wrapper for all", map[string]string{"iptables": "wrapper", "iptables-legacy": "wrapper", "iptables-nft": "wrapper"}, Legacy},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"wrapper": "echo 'iptables v1.8.9 (legacy)'", "broken": "exit 1"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			for name, file := range c.links {
				if err := os.Symlink(file, filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			if _, got, err := plainVariant(t.Context()); err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}
