package cgroup

import (
	"strings"
	"testing"
	"testing/fstest"
)

func files(pairs ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return out
}

func TestMemoryLimit(t *testing.T) {
	const v1none = "9223372036854771712\n"
	for name, c := range map[string]struct {
		root fstest.MapFS
		want int64
		err  string
	}{
		"no control groups": {files(), 0, ""},
		"v2": {files("proc/self/cgroup", "0::/kubepods.slice/pod1/c1\n",
			"sys/fs/cgroup/kubepods.slice/pod1/c1/memory.max", "268435456\n"), 268435456, ""},
		"v2, the pod around it has less": {files("proc/self/cgroup", "0::/pod1/c1\n",
			"sys/fs/cgroup/pod1/c1/memory.max", "max\n", "sys/fs/cgroup/pod1/memory.max", "1000000\n"), 1000000, ""},
		"v2, in a namespace of its own": {files("proc/self/cgroup", "0::/\n",
			"sys/fs/cgroup/memory.max", "2000000\n"), 2000000, ""},
		"v2, the mount begins at the own group": {files("proc/self/cgroup", "0::/../../kubepods/pod1\n",
			"sys/fs/cgroup/memory.max", "3000000\n"), 3000000, ""},
		"v2, no limit": {files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "max\n"), 0, ""},
		"v1": {files("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/docker/c1\n0::/\n",
			"sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes", "134217728\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes", v1none), 134217728, ""},
		"v1, no limit": {files("proc/self/cgroup", "4:hugetlb,memory:/docker/c1\n",
			"sys/fs/cgroup/memory/docker/c1/memory.limit_in_bytes", v1none), 0, ""},
		"both, memory with v2": {files("proc/self/cgroup", "1:name=systemd:/a\n0::/a\n",
			"sys/fs/cgroup/unified/a/memory.max", "5000000\n"), 5000000, ""},
		"another controller": {files("proc/self/cgroup", "4:memory2:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1\n"), 0, ""},
		"nonsense in a limit": {files("proc/self/cgroup", "0::/a\n", "sys/fs/cgroup/a/memory.max", "lots\n"), 0, `/sys/fs/cgroup/a/memory.max says "lots"`},
		"nonsense in groups":  {files("proc/self/cgroup", "memory\n::\n0::\n"), 0, ""},
	} {
		got, err := MemoryLimit(c.root)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d, %v; want %d, %q", name, got, err, c.want, c.err)
		}
	}
}

func FuzzMemoryLimit(f *testing.F) {
	f.Add("0::/a/../b\n4:memory:/c\n", "12\n")
	f.Fuzz(func(t *testing.T, groups, limit string) {
		n, err := MemoryLimit(files("proc/self/cgroup", groups, "sys/fs/cgroup/memory.max", limit,
			"sys/fs/cgroup/memory/memory.limit_in_bytes", limit))
		if n < 0 || n > 0 && err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}
