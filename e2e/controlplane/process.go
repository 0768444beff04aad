package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"portolan/lab"
)

// Process is etcd or kube-apiserver: a program that can be ended in two ways and
// started again with the same arguments. Its methods are for one goroutine at a
// time.
type Process struct {
	name    string
	program string
	args    []string
	log     string // file, one for all runs
	host    *lab.Host
	ready   func(ctx context.Context, ended <-chan struct{}) error
	run     *run // nil when not running
}

// run is one run of a program.
type run struct {
	process *os.Process
	done    <-chan struct{}
}

// PID is the running program's process id, 0 when it does not run.
func (p *Process) PID() int {
	if p.run == nil {
		return 0
	}
	return p.run.process.Pid
}

// Log is the file that the program writes its log to.
func (p *Process) Log() string { return p.log }

// Start starts the program and waits until it serves. The program ends with this
// process, however that ends.
func (p *Process) Start(ctx context.Context) error {
	if p.run != nil {
		return fmt.Errorf("controlplane: start %s: it runs", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("controlplane: log of %s: %w", p.name, err)
	}
	defer log.Close()
	if p.run, err = p.launch(log); err != nil {
		return fmt.Errorf("controlplane: start %s: %w", p.name, err)
	}
	if err := p.ready(ctx, p.run.done); err != nil {
		return errors.Join(fmt.Errorf("controlplane: %s does not serve: %w; its log ends with\n%s", p.name, err, tail(p.log)), p.Kill())
	}
	return nil
}

// launch starts the program, in the namespace of its host if it has one.
func (p *Process) launch(log *os.File) (*run, error) {
	if p.host != nil {
		// Not bound to the caller's context: a program outlives the call that starts it.
		cmd := p.host.Command(context.Background(), lab.HostVariant, p.program, p.args...)
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return &run{cmd.Process, cmd.Done()}, nil
	}
	cmd := exec.Command(p.program, p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() {
		// The kernel takes the thread for the parent whose death is meant.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return &run{cmd.Process, done}, nil
}

// Stop asks the program to end and waits for it. When ctx ends first, it is
// killed.
func (p *Process) Stop(ctx context.Context) error {
	if p.run == nil {
		return nil
	}
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.run.done:
		p.run = nil
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("controlplane: stop %s: %w", p.name, ctx.Err()), p.Kill())
	}
}

// Kill ends the program at once.
func (p *Process) Kill() error {
	if p.run == nil {
		return nil
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.run.done
	p.run = nil
	return nil
}

func (p *Process) signal(s syscall.Signal) error {
	if err := p.run.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("controlplane: %v to %s: %w", s, p.name, err)
	}
	return nil
}

// tail is the end of a log.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}
