package manifests

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"portolan/service"
	"portolan/source/kube"
)

const (
	// settle is how long a file has to be quiet before it is read, so that an
	// editor's half-written file is rarely seen; settleMax bounds the wait while
	// writes go on.
	settle    = 15 * time.Millisecond
	settleMax = 60 * time.Millisecond
	// rescan finds what notifications cannot tell: network file systems, folders
	// that were made and filled before they could be watched, and empty files
	// that stay empty.
	rescan = 5 * time.Second
)

// Watch calls changed with the first Snapshot and then after every change of
// the files or of the settings, until ctx ends. Settings that change meanwhile,
// such as local addresses, come as functions. While some path has never been
// there, or nothing at all could be read, the Snapshot is nil and only the problems
// are told.
func (s *Source) Watch(ctx context.Context, settings <-chan func(*kube.Settings), changed func(*service.Snapshot, []Problem)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("manifests: watch files: %w", err)
	}
	defer watcher.Close()
	watched := map[string]bool{}
	load := func() {
		s.follow(watcher, watched)
		snapshot, problems := s.Load(ctx)
		if ctx.Err() != nil {
			return // what was not read because of that is no problem of a file
		}
		if !s.complete {
			snapshot = nil
		}
		changed(snapshot, problems)
	}
	load()
	tick := time.NewTicker(rescan)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change := <-settings:
			s.cluster.Configure(change)
			load()
		case event := <-watcher.Events:
			if event.Op == fsnotify.Chmod || !s.concerns(event.Name) {
				continue
			}
			if err := waitQuiet(ctx, watcher); err != nil {
				return err
			}
			load()
		case <-watcher.Errors: // an overflow loses events, so look at everything
			load()
		case <-tick.C:
			load()
		}
	}
}

// concerns tells whether a change of the file of that name may change what the
// paths say: it is one of them, lies directly in one, or leads to one. Of a file in the
// working folder the watcher says "./" before its name.
func (s *Source) concerns(name string) bool {
	name = filepath.Clean(name)
	return slices.ContainsFunc(s.paths, func(path string) bool {
		return name == path || filepath.Dir(name) == path || strings.HasPrefix(path, name+string(filepath.Separator))
	})
}

// waitQuiet returns when no event came for a while.
func waitQuiet(ctx context.Context, watcher *fsnotify.Watcher) error {
	deadline := time.After(settleMax)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-watcher.Events:
		case <-deadline:
			return nil
		case <-time.After(settle):
			return nil
		}
	}
}

// follow watches the folder of every path and, for a folder, itself. Where a
// folder is missing its nearest existing parent is watched, so that its return
// is noticed.
func (s *Source) follow(watcher *fsnotify.Watcher, watched map[string]bool) {
	want := map[string]bool{}
	for _, path := range s.paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			want[path] = true
		}
		parent := filepath.Dir(path)
		for parent != filepath.Dir(parent) {
			if _, err := os.Stat(parent); err == nil {
				break
			}
			parent = filepath.Dir(parent)
		}
		want[parent] = true
	}
	// A removed folder loses its watch silently, so ask what is in force.
	clear(watched)
	for _, name := range watcher.WatchList() {
		watched[name] = true
	}
	for name := range want {
		if !watched[name] {
			_ = watcher.Add(name) // gone again: the rescan looks after it
		}
	}
	for name := range watched {
		if !want[name] {
			_ = watcher.Remove(name)
		}
	}
}

func stampOf(info fs.FileInfo) stamp {
	out := stamp{modified: info.ModTime(), size: info.Size()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		out.inode = sys.Ino
	}
	return out
}
