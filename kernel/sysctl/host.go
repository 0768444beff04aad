package sysctl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Host is the file system of a machine, usually "/".
type Host string

// Read returns the number in a file.
func (h Host) Read(file string) (int, error) {
	text, err := os.ReadFile(h.path(file))
	if err != nil {
		return 0, fmt.Errorf("sysctl: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("sysctl: %s holds %q, which is no number", h.path(file), text)
	}
	return n, nil
}

// Apply writes every change, and goes on after one that fails: it returns those
// that were written, and all errors.
func (h Host) Apply(changes []Change) ([]Change, error) {
	var done []Change
	var errs []error
	for _, c := range changes {
		// The kernel has the file or it has not: nothing is created.
		f, err := os.OpenFile(h.path(c.File), os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = f.WriteString(strconv.Itoa(c.Value))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("sysctl: %d instead of %d: %w", c.Value, c.Now, err))
			continue
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}

// CPUs is the number of CPUs that are online, whatever this process may use.
func (h Host) CPUs() int {
	text, err := os.ReadFile(h.path("sys/devices/system/cpu/online"))
	if n := CountCPUs(string(text)); err == nil && n > 0 {
		return n
	}
	return runtime.NumCPU()
}

func (h Host) path(file string) string { return filepath.Join(string(h), file) }
