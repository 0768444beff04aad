package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"portolan/kernel/nft"
	"portolan/lab"
)

// cpu is the processor time that a process and its children that have ended used.
type cpu struct{ self, children time.Duration }

func (c cpu) total() time.Duration { return c.self + c.children }

func (c cpu) since(before cpu) cpu {
	return cpu{c.self - before.self, c.children - before.children}
}

// readCPU reads the process's clock, which is exact, and its children's time,
// which the kernel tells in hundredths of a second.
func readCPU(pid int) (cpu, error) {
	var t unix.Timespec
	const scheduled = 2 // of the clocks of a process: all its running time
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &t); err != nil {
		return cpu{}, fmt.Errorf("bench: processor time of %d: %w", pid, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return cpu{}, fmt.Errorf("bench: processor time: %w", err)
	}
	children, err := childrenTime(text)
	return cpu{time.Duration(t.Nano()), children}, err
}

// childrenTime is the sum of cutime and cstime of /proc/PID/stat, which are the
// 14th and 15th field behind the program's name.
func childrenTime(stat []byte) (time.Duration, error) {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("bench: processor time: %d fields in %q", len(fields), stat)
	}
	var ticks int64
	for _, f := range fields[13:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("bench: processor time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// peakMemory is the most memory that a process had so far, in bytes; 0 when it is
// gone.
func peakMemory(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // gone: nothing is found below
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	field, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.ParseInt(field, 10, 64)
	return kib << 10
}

// childWatch looks at the children of a process again and again, since they are
// short-lived, and keeps the most memory that one of them had.
type childWatch struct {
	mu   sync.Mutex
	peak int64
	stop chan struct{}
	done sync.WaitGroup
}

const childPause = 5 * time.Millisecond

func watchChildren(pid int) *childWatch {
	c := &childWatch{stop: make(chan struct{})}
	c.done.Go(func() {
		again := time.NewTicker(childPause)
		defer again.Stop()
		for {
			select {
			case <-c.stop:
				return
			case <-again.C:
				c.look(pid)
			}
		}
	})
	return c
}

// look passes over children that still run the program of their parent: until they run
// their own, the memory that they show is the parent's.
func (c *childWatch) look(pid int) {
	own := program(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range lists {
		text, _ := os.ReadFile(file) // the thread may be gone
		for _, f := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(f)
			if at := program(child); at == "" || at == own {
				continue
			}
			peak := peakMemory(child)
			c.mu.Lock()
			c.peak = max(c.peak, peak)
			c.mu.Unlock()
		}
	}
}

// program is what a process runs, empty when it is gone.
func program(pid int) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return path
}

// end stops watching and tells the peak, in bytes.
func (c *childWatch) end() int64 {
	close(c.stop)
	c.done.Wait()
	return c.peak
}

// nftCommits counts the changes of a host's nftables rules, iptables-nft's
// included: the kernel numbers them.
func nftCommits(h *lab.Host) (n uint32, err error) {
	err = h.Do(func() error {
		conn, err := nft.Dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		n, err = conn.Generation()
		return err
	})
	return n, err
}

// recorder is a folder of programs that note how they are called and then are
// iptables-legacy: the kernel does not number the changes of those tables.
type recorder struct{ dir string }

func newRecorder(parent string) (recorder, error) {
	dir, err := os.MkdirTemp(parent, "recorder-")
	if err != nil {
		return recorder{}, fmt.Errorf("bench: recorder: %w", err)
	}
	for _, name := range []string{"iptables", "iptables-restore", "ip6tables", "ip6tables-restore"} {
		text := fmt.Sprintf("#!/bin/sh\necho %[1]s \"$*\" >>%[2]s/calls\nPATH=${PATH#*:} exec %[1]s \"$@\"\n", name, dir)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			return recorder{}, fmt.Errorf("bench: recorder: %w", err)
		}
	}
	return recorder{dir}, nil
}

// writes counts the calls so far that write.
func (r recorder) writes() int {
	text, _ := os.ReadFile(filepath.Join(r.dir, "calls")) // not there: no call
	return countWrites(string(text))
}

// countWrites counts the calls that change rules, one a line.
func countWrites(calls string) (n int) {
	for line := range strings.Lines(calls) {
		fields := strings.Fields(line)
		restore := strings.HasSuffix(fields[0], "-restore")
		for _, f := range fields[1:] {
			switch f {
			case "--test", "-t": // for iptables, -t is the table
				restore = false
			case "-N", "-I", "-A", "-D", "-X", "-F", "-P", "-R":
				n++
			}
		}
		if restore {
			n++
		}
	}
	return n
}
