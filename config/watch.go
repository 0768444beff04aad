package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// ErrChanged ends a process whose configuration file says something new, so that
// its supervisor starts it again. The words are kube-proxy's: scripts look for
// them.
var ErrChanged = errors.New("content of the proxy server's configuration file was updated")

// look is how often the file is read whatever notifications say: they miss
// network file systems, and a link that leads through other folders.
const look = 10 * time.Second

// Watch waits until the file that the configuration came from has other content,
// which is ErrChanged, or until ctx ends, which is no error. A file that is gone
// is not new content: an editor or a ConfigMap update may be about to put it
// back. Without a file it waits for ctx, and with a pipe, which says nothing twice.
func (c Config) Watch(ctx context.Context) error {
	if info, err := os.Stat(c.path); c.path == "" || err == nil && !info.Mode().IsRegular() {
		<-ctx.Done()
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("config: watch %s: %w", c.path, err)
	}
	defer watcher.Close()
	// The folder tells of files that take the place of ours, also where ours is a
	// link into another one, as kubelet mounts ConfigMaps.
	if err := watcher.Add(filepath.Dir(c.path)); err != nil {
		return fmt.Errorf("config: watch %s: %w", c.path, err)
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		if now, err := os.ReadFile(c.path); err == nil && !bytes.Equal(now, c.data) {
			return fmt.Errorf("config: %s: %w", c.path, ErrChanged)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-watcher.Events:
		case <-watcher.Errors: // lost events: look again
		case <-tick.C:
		}
	}
}
