package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"portolan/bench/figures"
)

// cached is the folder in the user's cache for what etcd holds of a workload; it
// may not be there yet. Its name tells which programs wrote it and what is in it,
// so that neither a new version nor a changed workload finds the old one.
func cached(programs string, of figures.Workload, items []item) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("bench: cache folder: %w", err)
	}
	hash := sha256.New()
	lines := json.NewEncoder(hash)
	for _, it := range items {
		if err := lines.Encode(append([]any{it.service}, it.slices)); err != nil {
			return "", fmt.Errorf("bench: cache folder: %w", err)
		}
	}
	name := fmt.Sprintf("world-%v-%s-%x", of, filepath.Base(programs), hash.Sum(nil)[:6])
	return filepath.Join(cache, "portolan", name), nil
}
