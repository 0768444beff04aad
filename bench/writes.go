package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"portolan/bench/figures"
	"portolan/kernel/nft"
	"portolan/lab"
)

// counter returns what counts writes to the kernel, and the folder of the programs
// to run for it.
func (m *measurement) counter() (count func() (int, error), dir string, err error) {
	if m.mode.Peer() == figures.Legacy {
		r, err := newRecorder(m.dir)
		return func() (int, error) { return r.writes(), nil }, r.dir, err
	}
	return func() (int, error) {
		n, err := nftCommits(&m.node.Host)
		return int(n), err
	}, "", nil
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
