package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kind is what a host of a lab is.
type Kind string

// The kinds of hosts.
const (
	ANode   Kind = "node"
	APod    Kind = "pod"
	AClient Kind = "client"
)

// State is what another process needs to know of a lab that is up.
type State struct {
	PID   int    // of the process that holds it
	Dir   string // its working directory
	Hosts []HostState
	// Manifests are the files and folders with its Services.
	Manifests []string
}

// HostState is one host.
type HostState struct {
	Name  string
	Kind  Kind
	Path  string // of its network namespace
	Addrs []netip.Addr
}

const stateFile = "state.json"

// Publish lets other processes of this user find the lab until Close, as it is
// now. Manifests are absolute paths; none leaves those of before.
func (l *Lab) Publish(manifests []string) error {
	l.mu.Lock()
	if manifests != nil {
		l.manifests = manifests
	}
	s := State{PID: os.Getpid(), Dir: l.dir, Manifests: l.manifests}
	l.mu.Unlock()
	for _, m := range manifests {
		if !filepath.IsAbs(m) {
			return fmt.Errorf("lab: publish: %s is not an absolute path", m)
		}
	}
	add := func(h *Host, kind Kind) {
		s.Hosts = append(s.Hosts, HostState{h.Name, kind, h.path(), h.Addrs})
	}
	for _, n := range l.nodes {
		add(&n.Host, ANode)
	}
	l.mu.Lock()
	for _, p := range l.pods {
		add(&p.Host, APod)
	}
	l.mu.Unlock()
	add(l.Client, AClient)
	text, err := json.Marshal(s)
	if err == nil {
		next := filepath.Join(l.dir, "."+stateFile)
		if err = os.WriteFile(next, text, 0o600); err == nil {
			err = os.Rename(next, filepath.Join(l.dir, stateFile))
		}
	}
	if err != nil {
		return fmt.Errorf("lab: publish: %w", err)
	}
	return nil
}

// ErrNoLab tells that no lab of this user is up.
var ErrNoLab = errors.New("lab: no lab is up: begin with \"portolan lab up\"")

// Find returns the lab of this user that is up: the one that a process holds, or
// the only one when pid is 0.
func Find(pid int) (State, error) {
	pattern := dirPrefix + "*"
	if pid != 0 {
		pattern = fmt.Sprintf("%s%d-*", dirPrefix, pid)
	}
	files, err := filepath.Glob(filepath.Join(os.TempDir(), pattern, stateFile))
	if err != nil {
		return State{}, fmt.Errorf("lab: %w", err)
	}
	var found []State
	for _, file := range files {
		if s, ok := readState(file); ok {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return State{}, ErrNoLab
	case 1:
		return found[0], nil
	}
	var pids []string
	for _, s := range found {
		pids = append(pids, strconv.Itoa(s.PID))
	}
	return State{}, fmt.Errorf("lab: several labs are up, held by processes %s: choose one with --lab", strings.Join(pids, ", "))
}

// readState reads the state of a lab of this user whose process lives.
func readState(file string) (State, bool) {
	info, err := os.Lstat(filepath.Dir(file))
	if err != nil || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return State{}, false // others may write what they like there
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return State{}, false
	}
	var s State
	if err := json.Unmarshal(text, &s); err != nil || s.PID <= 0 || syscall.Kill(s.PID, 0) != nil {
		return State{}, false
	}
	return s, true
}

// Attach makes a host of a lab that another process holds usable in this one:
// to call and hear from, not to run programs in. It ends with Detach.
func (s State) Attach(name string) (*Host, error) {
	for _, h := range s.Hosts {
		if h.Name != name {
			continue
		}
		home, err := os.Open(ownNetwork)
		if err != nil {
			return nil, fmt.Errorf("lab: own network namespace: %w", err)
		}
		file, err := os.Open(h.Path)
		if err != nil {
			home.Close()
			return nil, fmt.Errorf("lab: namespace of %s: %w", name, err)
		}
		return &Host{Name: name, Addrs: h.Addrs, ns: &namespace{home: home, file: file}}, nil
	}
	var names []string
	for _, h := range s.Hosts {
		names = append(names, h.Name)
	}
	return nil, fmt.Errorf("lab: nobody is called %q; there are %s", name, strings.Join(names, ", "))
}

// Detach lets go of a host that was attached.
func (h *Host) Detach() {
	h.ns.home.Close()
	h.ns.close()
}

// Become makes this process a program in the host; it returns only an error.
func (h *Host) Become(path string, args, env []string) error {
	return h.ns.do(func() error { return unix.Exec(path, args, env) })
}

// End asks the process that holds the lab to remove it, and waits until it has.
func (s State) End() error {
	fd, err := unix.PidfdOpen(s.PID, 0)
	if err != nil {
		return fmt.Errorf("lab: process %d: %w", s.PID, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return fmt.Errorf("lab: end process %d: %w", s.PID, err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if err == nil && n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lab: wait for process %d: %w", s.PID, err)
		}
	}
}
