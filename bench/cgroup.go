package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A memoryGroup is a memory cgroup: the kernel charges to it what programs in it make
// the kernel hold, their rules too, and what they leave behind stays charged.
type memoryGroup struct {
	dir     string
	unified bool // cgroup v2
}

// newMemoryGroup makes a group; nil where there are no memory cgroups to make.
func newMemoryGroup(number int) (*memoryGroup, error) {
	const root = "/sys/fs/cgroup"
	name := fmt.Sprintf("portolan-bench-%d-%d", os.Getpid(), number)
	g := &memoryGroup{dir: filepath.Join(root, "memory", name)}
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err == nil && strings.Contains(string(controllers), "memory") {
		g = &memoryGroup{filepath.Join(root, name), true}
		// Refused where processes sit beside groups, which leaves no memory to read.
		_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0)
	}
	if err := os.Mkdir(g.dir, 0o755); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("bench: memory cgroup: %w", err)
	}
	if _, err := g.kernelMemory(); err != nil {
		return nil, g.close()
	}
	return g, nil
}

// add moves a process into the group; its children will be in it, too.
func (g *memoryGroup) add(pid int) error {
	if err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		return fmt.Errorf("bench: memory cgroup: %w", err)
	}
	return nil
}

// kernelMemory is what the kernel holds for the group now, in bytes.
func (g *memoryGroup) kernelMemory() (int64, error) {
	file := "memory.kmem.usage_in_bytes"
	if g.unified {
		file = "memory.stat"
	}
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0, fmt.Errorf("bench: kernel memory: %w", err)
	}
	number := strings.TrimSpace(string(text))
	if g.unified {
		_, rest, _ := strings.Cut("\n"+number, "\nkernel ")
		number, _, _ = strings.Cut(rest, "\n")
	}
	bytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("bench: kernel memory: %s: %w", file, err)
	}
	return bytes, nil
}

// close removes the group, in which no process may be left.
func (g *memoryGroup) close() error {
	if err := os.Remove(g.dir); err != nil {
		return fmt.Errorf("bench: memory cgroup: %w", err)
	}
	return nil
}
