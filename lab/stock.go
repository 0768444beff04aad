package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Stock lists what a lab could leave behind on this machine, one thing a string:
// interfaces of the current network namespace, named namespaces, namespaces and
// sockets that this process holds, its children, and working directories of labs of
// this process. Taken before a lab and after its Close, it must be the same; Left
// compares. Sorted.
func Stock() ([]string, error) {
	var stock []string
	add := func(kind, pattern string) {
		found, _ := filepath.Glob(pattern)
		for _, f := range found {
			stock = append(stock, kind+" "+filepath.Base(f))
		}
	}
	// /sys/class/net shows the namespace of its mount, so ask the thread instead.
	table, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return nil, fmt.Errorf("lab: list interfaces: %w", err)
	}
	for line := range strings.Lines(string(table)) {
		if name, _, is := strings.Cut(line, ":"); is {
			stock = append(stock, "interface "+strings.TrimSpace(name))
		}
	}
	add("named namespace", "/run/netns/*")
	add("working directory", filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-*", dirPrefix, os.Getpid())))
	held, err := holdings()
	if err != nil {
		return nil, err
	}
	stock = append(append(stock, held...), children()...)
	slices.Sort(stock)
	return stock, nil
}

// holdings lists namespaces and sockets among our open files.
func holdings() ([]string, error) {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("lab: list open files: %w", err)
	}
	var list []string
	for _, f := range files {
		target, err := os.Readlink("/proc/self/fd/" + f.Name())
		if err == nil && (strings.HasPrefix(target, "net:[") || strings.HasPrefix(target, "socket:[")) {
			list = append(list, "open "+target)
		}
	}
	return list, nil
}

// children lists processes whose parent we are.
func children() []string {
	var list []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// PID (NAME) STATE PPID ...; the name may hold anything, brackets too.
		end := strings.LastIndexByte(string(text), ')')
		fields := strings.Fields(string(text[end+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			list = append(list, "child process "+strings.Split(path, "/")[2])
		}
	}
	return list
}

// Left gives what is in after and was not in before.
func Left(before, after []string) []string {
	var left []string
	for _, item := range after {
		if !slices.Contains(before, item) {
			left = append(left, item)
		}
	}
	return left
}

// LeftAfter compares the stock of now with one from before, and gives the kernel
// and closing servers a moment to let go of what is on its way out.
func LeftAfter(before []string, moment time.Duration) ([]string, error) {
	deadline := time.Now().Add(moment)
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for {
		now, err := Stock()
		left := Left(before, now)
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		<-pause.C
	}
}
