package iptables

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
			if got, err := plainVariant(t.Context()); err != nil || got != c.want {
				t.Errorf("%q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestVersionIsAskedOfWhatIsThere: a host need not have all programs of a variant, and one
// that has none that tells its version is told which were asked.
func TestVersionIsAskedOfWhatIsThere(t *testing.T) {
	const works, broken = "echo 'iptables v1.8.7 (nf_tables)'", "echo no such library >&2; exit 1"
	for _, c := range []struct {
		name     string
		programs map[string]string // and their scripts
		save     string            // that the tool has
		fails    string
	}{
		{"without the one that lists", map[string]string{"iptables": works, "iptables-nft": works, "iptables-nft-restore": works}, "iptables-save", ""},
		{"the same file", map[string]string{"iptables": works, "iptables-nft": "link", "iptables-nft-restore": works}, "iptables-save", ""},
		{"only those that are needed", map[string]string{"iptables-nft-save": works, "iptables-nft-restore": works}, "iptables-nft-save", ""},
		{"one that does not start", map[string]string{"iptables-nft": broken, "iptables-nft-save": works, "iptables-nft-restore": works}, "iptables-nft-save", ""},
		{"none that starts", map[string]string{"iptables-nft-save": works, "iptables-nft-restore": broken}, "", "iptables-nft-restore --version: exit status 1: no such library"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range c.programs {
				path := filepath.Join(dir, name)
				err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)
				if text == "link" {
					err = errors.Join(os.Remove(path), os.Symlink("iptables", path))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			inNamespace(t, func() {
				h, err := Detect(t.Context())
				switch {
				case c.fails != "":
					if err == nil || !strings.Contains(err.Error(), c.fails) {
						t.Errorf("%v; want %q", err, c.fails)
					}
				case err != nil:
					t.Error(err)
				case h.Tool(IPv4).Version != Version{1, 8, 7} || h.Tool(IPv4).SaveProgram != c.save:
					t.Errorf("%+v", h.Tool(IPv4))
				}
			})
		})
	}
}
