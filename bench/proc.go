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
	return time.Duration(ticks) * tick, nil
}

// peakMemory is the most memory that a process had so far, in bytes; 0 when it is
// gone.
func peakMemory(pid int) int64 { return memoryOf(pid, "VmHWM") }

// residentMemory is the memory that a process has now, in bytes; 0 when it is gone.
func residentMemory(pid int) int64 { return memoryOf(pid, "VmRSS") }

func memoryOf(pid int, field string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // gone: nothing is found below
	return kibibytes(string(text), field)
}

// kibibytes finds a line "FIELD:  N kB" and returns it in bytes; 0 when there is
// none.
func kibibytes(text, field string) int64 {
	_, rest, _ := strings.Cut(text, field+":")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, _ := strconv.ParseInt(number, 10, 64)
	return kib << 10
}

// load is the average of the last minute; 0 where the kernel does not tell.
func load() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// busyTime is the processor time that the whole machine has used so far.
func busyTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("bench: processor time: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	const idle, waiting, stolen = 4, 5, 8 // of the fields; guests' time is in others, too
	var ticks int64
	for i := 1; i < min(len(fields), stolen); i++ {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("bench: processor time: %w", err)
		}
		if i != idle && i != waiting {
			ticks += n
		}
	}
	return time.Duration(ticks) * tick, nil
}

// tick is the unit in which the kernel tells processor time.
const tick = 10 * time.Millisecond

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
	own := executable(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range lists {
		text, _ := os.ReadFile(file) // the thread may be gone
		for _, f := range strings.Fields(string(text)) {
			child, _ := strconv.Atoi(f)
			if at := executable(child); at == "" || at == own {
				continue
			}
			peak := peakMemory(child)
			c.mu.Lock()
			c.peak = max(c.peak, peak)
			c.mu.Unlock()
		}
	}
}

// executable is what a process runs, empty when it is gone.
func executable(pid int) string {
	path, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return path
}

// end stops watching and tells the peak, in bytes.
func (c *childWatch) end() int64 {
	close(c.stop)
	c.done.Wait()
	return c.peak
}
