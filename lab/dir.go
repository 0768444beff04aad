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
// killed before it could.
func newDir() (string, error) {
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", dirPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return "", fmt.Errorf("lab: working directory: %w", err)
	}
	return dir, nil
}

func sweep(parent string) {
	found, _ := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	for _, dir := range found {
		text, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), dirPrefix), "-")
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		os.RemoveAll(dir)
	}
}
