package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Variant is which iptables a command of a host meets under the plain names.
type Variant string

const (
	HostVariant Variant = ""       // whatever the machine has
	Legacy      Variant = "legacy" // xtables-legacy-multi
	NFT         Variant = "nft"    // xtables-nft-multi
)

// programs are the names under which both variants' binary knows what to do.
var programs = []string{
	"iptables", "iptables-save", "iptables-restore",
	"ip6tables", "ip6tables-save", "ip6tables-restore",
}

// Available tells whether this machine has the variant.
func (v Variant) Available() bool {
	_, err := v.binary()
	return err == nil
}

func (v Variant) binary() (string, error) {
	name := "xtables-" + string(v) + "-multi"
	for _, dir := range strings.Split(searchPath, ":") {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("lab: no %s in %s", name, searchPath)
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Cmd is a program inside a host. It is an exec.Cmd, except that only the methods
// below start it in the right place.
type Cmd struct {
	*exec.Cmd
	host *Host
	path string // the program's PATH
	done chan struct{}
	err  error // of the program; readable when done is closed
}

// Command prepares a program inside the host's network namespace. It ends when ctx
// ends, when the lab closes, and when this process dies, however it dies. Its
// XTABLES_LOCKFILE belongs to this host alone, as the lock would on a machine.
func (h *Host) Command(ctx context.Context, v Variant, name string, args ...string) *Cmd {
	path := searchPath
	var problem error
	if v != HostVariant {
		dir, err := h.lab.links(v)
		problem, path = err, dir+":"+path
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if !strings.Contains(name, "/") {
		cmd.Path, cmd.Err = lookPath(name, path)
	}
	if problem != nil {
		cmd.Err = problem
	}
	cmd.Env = append(os.Environ(), "PATH="+path, "XTABLES_LOCKFILE="+filepath.Join(h.lab.dir, "xtables."+h.Name))
	cmd.WaitDelay = time.Second // for pipes that a grandchild keeps open
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return &Cmd{Cmd: cmd, host: h, path: path, done: make(chan struct{})}
}

// lookPath finds a program in the PATH that it will run with, not in ours.
func lookPath(name, path string) (string, error) {
	for _, dir := range strings.Split(path, ":") {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return name, fmt.Errorf("lab: no program %s in %s", name, path)
}

// Prefer makes the program find other programs in a folder before the usual ones.
func (c *Cmd) Prefer(dir string) {
	c.path = dir + ":" + c.path
	c.Env = append(c.Env, "PATH="+c.path) // of several, the last counts
}

// Start starts the program inside the host.
func (c *Cmd) Start() error {
	l := c.host.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("lab: start %s in %s: the lab is closed", c.Path, c.host.Name)
	}
	if err := c.host.ns.keep(c.Cmd.Start); err != nil {
		return fmt.Errorf("lab: start %s in %s: %w", c.Path, c.host.Name, err)
	}
	l.commands[c] = struct{}{}
	go c.reap()
	return nil
}

// reap waits for the program, so that Close can too, whatever the starter does.
func (c *Cmd) reap() {
	c.err = c.Cmd.Wait()
	l := c.host.lab
	l.mu.Lock()
	delete(l.commands, c)
	l.mu.Unlock()
	close(c.done)
}

// Wait waits for a started program to end, any number of times.
func (c *Cmd) Wait() error {
	<-c.done
	return c.err
}

// Done is closed when a started program has ended.
func (c *Cmd) Done() <-chan struct{} { return c.done }

// Run starts the program and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// CombinedOutput runs the program and gives what it wrote to stdout and stderr.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var b strings.Builder
	c.Stdout, c.Stderr = &b, &b
	err := c.Run()
	return []byte(b.String()), err
}

// end kills a program and waits until it is gone.
func (c *Cmd) end() {
	c.Process.Kill()
	<-c.done
}

// links makes a directory in which the plain names are those of the variant.
func (l *Lab) links(v Variant) (string, error) {
	binary, err := v.binary()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(l.dir, string(v))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("lab: directory for %s: %w", v, err)
	}
	for _, name := range programs {
		if err := os.Symlink(binary, filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return "", fmt.Errorf("lab: link for %s: %w", v, err)
		}
	}
	return dir, nil
}
