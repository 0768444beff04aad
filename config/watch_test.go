package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// link has path lead to target, in one step.
func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Every way in which a file gets other content is told; a file that stays the
// same, or is gone, is not.
func TestWatch(t *testing.T) {
	const old, changed = head + "mode: iptables\n", head + "mode: nftables\n"
	for name, change := range map[string]func(t *testing.T, dir string){
		"written": func(t *testing.T, dir string) { put(t, filepath.Join(dir, "config.conf"), changed) },
		"renamed": func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "new"), changed)
			if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "config.conf")); err != nil {
				t.Fatal(err)
			}
		},
		"removed and put back": func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, "config.conf")); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, "config.conf"), changed)
		},
		"ConfigMap": func(t *testing.T, dir string) { link(t, "..2", filepath.Join(dir, "..data")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "config.conf")
			if name == "ConfigMap" { // as kubelet mounts it
				for folder, text := range map[string]string{"..1": old, "..2": changed} {
					if err := os.Mkdir(filepath.Join(dir, folder), 0o755); err != nil {
						t.Fatal(err)
					}
					put(t, filepath.Join(dir, folder, "config.conf"), text)
				}
				link(t, "..1", filepath.Join(dir, "..data"))
				link(t, "..data/config.conf", path)
			} else {
				put(t, path, old)
			}
			c, _, err := load(t, FileFirst, "--config", path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- c.Watch(ctx) }()
			put(t, path, old) // the same content
			change(t, dir)
			if err := <-ended; !errors.Is(err, ErrChanged) {
				t.Errorf("%v", err)
			}
			stop()
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := (Config{}).Watch(ctx); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// TestWatchOfAPipe: what was read from a pipe is not taken back because a second read
// finds nothing there.
func TestWatchOfAPipe(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := in.WriteString(head + "mode: iptables\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	c, _, err := load(t, FileFirst, "--config", fmt.Sprintf("/dev/fd/%d", out.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if err := c.Watch(ctx); err != nil {
		t.Error(err)
	}
}
