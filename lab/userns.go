package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// EnterUserNamespace gives an ordinary user what a lab needs, where the kernel
// allows it: this program runs again as root of a user namespace and a network
// namespace of its own. For root it does nothing. again tells that the second run
// took place, with its exit code: the caller then only ends with that code.
func EnterUserNamespace() (code int, again bool, err error) {
	if os.Geteuid() == 0 {
		return 0, false, nil
	}
	runtime.LockOSThread() // the child dies with the thread that started it
	defer runtime.UnlockOSThread()

	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	// Ctrl-C reaches both; the child decides when it is done. Other signals are ours
	// to pass on.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 0, false, fmt.Errorf("lab: not root, and this kernel gives an ordinary user no namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns): %w", err)
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				cmd.Process.Signal(s)
			}
		}
	}()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, true, fmt.Errorf("lab: run again in a user namespace: %w", err)
	}
	code = cmd.ProcessState.ExitCode()
	if code < 0 {
		code = 128 + int(cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	return code, true, nil
}
