// Package cgroup reads what the control groups of this process allow it.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// MemoryLimit returns how many bytes the control group of this process may use, the
// least of its own and of those around it, as far as they can be seen. It reads
// cgroup v2, v1 and both at once, below root, which is "/" but for tests; 0 when
// there is no limit.
func MemoryLimit(root fs.FS) (int64, error) {
	text, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // a kernel without control groups
	}
	if err != nil {
		return 0, fmt.Errorf("cgroup: %w", err)
	}
	least := int64(math.MaxInt64)
	for line := range strings.Lines(string(text)) {
		// hierarchy:controllers:path, see cgroups(7).
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		for _, place := range placesOf(fields[0], fields[1]) {
			limit, err := limitAlong(root, place, fields[2])
			if err != nil {
				return 0, err
			}
			least = min(least, limit)
		}
	}
	if least >= noLimit {
		return 0, nil
	}
	return least, nil
}

// noLimit is what v1 says where there is none: the most bytes in whole pages, so
// that whatever is near it is meant.
const noLimit = math.MaxInt64 - 1<<20

// place is where a hierarchy with limits of memory is mounted, and the file with
// the limit of a group.
type place struct{ mount, file string }

// placesOf are where systemd mounts the hierarchy of a line, and everybody does as
// systemd.
func placesOf(hierarchy, controllers string) []place {
	if hierarchy == "0" && controllers == "" {
		return []place{{"sys/fs/cgroup", "memory.max"}, {"sys/fs/cgroup/unified", "memory.max"}}
	}
	for controller := range strings.SplitSeq(controllers, ",") {
		if controller == "memory" {
			return []place{{"sys/fs/cgroup/memory", "memory.limit_in_bytes"}}
		}
	}
	return nil
}

// limitAlong returns the least limit of a group and those above it. In a container
// the mount can begin at its own group: then the path leads nowhere, and the limit is
// at the top.
func limitAlong(root fs.FS, p place, group string) (int64, error) {
	least := int64(math.MaxInt64)
	for at := path.Join("/", group); ; at = path.Dir(at) {
		limit, err := readLimit(root, path.Join(p.mount, at, p.file))
		if err != nil {
			return 0, err
		}
		least = min(least, limit)
		if at == "/" {
			return least, nil
		}
	}
}

// readLimit reads one file; one that is not there limits nothing.
func readLimit(root fs.FS, file string) (int64, error) {
	text, err := fs.ReadFile(root, file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return math.MaxInt64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("cgroup: %w", err)
	}
	value := strings.TrimSpace(string(text))
	if value == "max" {
		return math.MaxInt64, nil
	}
	limit, err := strconv.ParseInt(value, 10, 64)
	if err != nil || limit < 0 {
		return 0, fmt.Errorf("cgroup: /%s says %q, which is no number of bytes", file, value)
	}
	return limit, nil
}
