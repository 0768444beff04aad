package agent

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"portolan/podnet"
)

// writeFile makes text the content of a file at once, unless it is. Nothing is
// done without a path. What is there and no file, such as a device or a folder, is
// left alone, with an error.
func writeFile(path string, text []byte) error {
	if path == "" {
		return nil
	}
	if err := notAFile(path); err != nil {
		return err
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

// removeFile removes a file, if there is one. Nothing is done without a path, nor to
// what is no file.
func removeFile(path string) error {
	if path == "" {
		return nil
	}
	if err := notAFile(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("podnet: %w", err)
	}
	return nil
}

// notAFile says that something else has the path: a rename over a device would
// take it from the whole host.
func notAFile(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("podnet: %s is a %s, not a file: --subnet-file and --cni-conf-file name files, and \"\" for none", path, kindOf(info.Mode()))
	}
	return nil // what else is wrong with it shows when it is used
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "pipe or socket"
}

// randomMAC is one that nobody assigned: local and of one station.
func randomMAC() (m podnet.MAC) {
	_, _ = rand.Read(m[:]) // never fails
	m[0] = m[0]&^1 | 2
	return m
}
