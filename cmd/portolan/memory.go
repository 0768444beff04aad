package main

import (
	"log/slog"
	"os"
	"runtime/debug"

	"portolan/kernel/cgroup"
)

// limitMemory has the garbage collector work harder before the control group of this
// process is full, which the kernel would answer by killing it. Four fifths are for
// us: the rest is for iptables-restore and for what Go does not count. Who sets
// GOMEMLIMIT has decided already.
func limitMemory(log *slog.Logger) {
	if set := os.Getenv("GOMEMLIMIT"); set != "" {
		log.Info("memory limit", "GOMEMLIMIT", set)
		return
	}
	limit, err := cgroup.MemoryLimit(os.DirFS("/"))
	switch {
	case err != nil:
		log.Warn("the memory limit of this control group is not known", "error", err)
	case limit > 0:
		debug.SetMemoryLimit(limit / 5 * 4)
		log.Info("memory limit", "bytes", limit/5*4, "controlGroup", limit)
	}
}
