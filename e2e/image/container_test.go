package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// enterArg is the first argument of a process that becomes a container.
const enterArg = "enter-container"

// container describes a container as a runtime is told about it.
type container struct {
	Root         string // folder of the image's files
	Mounts       []mount
	Capabilities []int // and no others, of the kernel's numbers
	ReadOnly     bool  // its root
	NoNewPrivs   bool
	Privileged   bool              // all capabilities, /proc/sys and /sys to be written
	Filter       []unix.SockFilter // of its system calls; none without
	Try          bool              // attempts instead of a program
	Args         []string
	Env          []string
}

// mount shows a file or a folder of the host inside of a container.
type mount struct {
	Source, Target string
	ReadOnly       bool
}

// enter makes this process the container that a file describes; its namespaces are
// made already. It does not return.
func enter(file string) {
	runtime.LockOSThread()
	text, err := os.ReadFile(file)
	var c container
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err == nil {
		err = errors.Join(c.mount(), c.restrict())
	}
	if err == nil && len(c.Filter) > 0 {
		err = install(c.Filter)
	}
	if err == nil && c.Try {
		try()
		os.Exit(0)
	}
	if err == nil {
		err = syscall.Exec(c.Args[0], c.Args, c.Env)
	}
	fmt.Fprintln(os.Stderr, "container:", err)
	os.Exit(125)
}

// mount builds the file system as runc does, and moves into it.
func (c container) mount() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := bind(mount{Source: c.Root, Target: c.Root}); err != nil {
		return err
	}
	for _, m := range []struct {
		target, kind string
		flags        uintptr
	}{{"/proc", "proc", 0}, {"/sys", "sysfs", 0}, {"/dev", "tmpfs", unix.MS_NOSUID}} {
		target := filepath.Join(c.Root, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	var list []mount
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/urandom"} {
		list = append(list, mount{Source: device, Target: filepath.Join(c.Root, device)})
	}
	for _, m := range c.Mounts {
		list = append(list, mount{m.Source, filepath.Join(c.Root, m.Target), m.ReadOnly})
	}
	if !c.Privileged {
		for _, dir := range []string{"/proc/sys", "/sys"} {
			list = append(list, mount{filepath.Join(c.Root, dir), filepath.Join(c.Root, dir), true})
		}
	}
	for _, m := range list {
		if err := bind(m); err != nil {
			return err
		}
	}
	if c.ReadOnly {
		if err := unix.Mount("", c.Root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	return errors.Join(unix.Chroot(c.Root), os.Chdir("/"))
}

// bind shows one place at another, which it makes.
func bind(m mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(m.Target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(m.Target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(m.Target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err == nil {
		err = unix.Mount(m.Source, m.Target, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil && m.ReadOnly {
		err = unix.Mount("", m.Target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s at %s: %w", m.Source, m.Target, err)
	}
	return nil
}

// restrict gives away all rights but those of the container.
func (c container) restrict() error {
	if c.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if c.Privileged {
		return nil
	}
	var set [2]unix.CapUserData
	keep := map[int]bool{}
	for _, number := range c.Capabilities {
		keep[number] = true
		set[number/32].Effective |= 1 << (number % 32)
		set[number/32].Permitted |= 1 << (number % 32)
	}
	for number := range unix.CAP_LAST_CAP + 1 {
		if keep[number] {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0); err != nil {
			return fmt.Errorf("drop capability %d: %w", number, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&header, &set[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}
