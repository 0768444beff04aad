package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dirPrefix begins the name of a lab's working directory; the process id follows.
const dirPrefix = "portolan-lab-"

// newDir makes the working directory, and removes those of labs whose process was
// killed before it could. The file is the directory, locked until it is closed: a
// process id means nothing in another PID namespace, a lock does.
func newDir() (string, *os.File, error) {
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", dirPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", nil, fmt.Errorf("lab: working directory: %w", err)
	}
	held, err := lock(dir)
	if err != nil {
		_ = os.Remove(dir) // what is told is why
		return "", nil, fmt.Errorf("lab: lock the working directory: %w", err)
	}
	return dir, held, nil
}

func lock(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the directories that no process holds, neither by its id nor by
// the lock.
func sweep(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range found {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		if held, err := lock(dir); err == nil {
			os.RemoveAll(dir)
			held.Close()
		}
	}
}
