package agent

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"

	"portolan/podnet"
)

// writeFile makes text the content of a file at once, unless it is. Nothing is
// done without a path.
func writeFile(path string, text []byte) error {
	if path == "" {
		return nil
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("podnet: %w", err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("podnet: %w", err)
	}
	_, err = temporary.Write(text)
	if errClose := temporary.Close(); err == nil {
		err = errClose
	}
	if err == nil {
		err = os.Chmod(temporary.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name()) // what is told is why
		return fmt.Errorf("podnet: write %s: %w", path, err)
	}
	return nil
}

// randomMAC is one that nobody assigned: local and of one station.
func randomMAC() (m podnet.MAC) {
	_, _ = rand.Read(m[:]) // never fails
	m[0] = m[0]&^1 | 2
	return m
}
