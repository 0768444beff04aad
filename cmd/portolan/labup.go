package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"portolan/cmd/portolan/demo"
	"portolan/lab"
)

func newLabUpCommand() *cobra.Command {
	f := labFlags{}
	foreground := false
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Build a cluster and keep it until lab down",
		Long: `Builds the cluster of "lab run" and keeps it up: "lab shell", "lab capture", "lab
traffic" and "lab walk" work on it, "lab down" removes it. Needs root; "lab run"
does not.

Exit codes: 0 it is up, 2 it could not be built.`,
		Example: `  portolan lab up --nodes 3
  portolan lab walk client default/web
  portolan lab down`,
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("lab up: a lab that stays up needs root; \"portolan lab run\" works without")
			}
			if foreground {
				return f.hold(cmd.Context(), cmd.OutOrStdout())
			}
			return startHolder(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in front, and remove the lab at the end")
	return cmd
}

// hold keeps a lab up until the context ends.
func (f labFlags) hold(ctx context.Context, out io.Writer) error {
	if s, err := lab.Find(0); !errors.Is(err, lab.ErrNoLab) {
		return errors.Join(err, fmt.Errorf("lab up: one is up already, held by process %d: \"portolan lab down\" removes it", s.PID))
	}
	return f.withPlan(ctx, func(plan demo.Plan, network labNetwork) error {
		return f.inside(ctx, out, plan, network, func(b builtLab) error {
			absolute := make([]string, len(b.manifests))
			for i, m := range b.manifests {
				path, err := filepath.Abs(m)
				if err != nil {
					return fmt.Errorf("lab: %w", err)
				}
				absolute[i] = path
			}
			if err := b.Publish(absolute); err != nil {
				return err
			}
			fmt.Fprintln(out, "\nIt stays up: lab shell, capture, traffic, walk, kill, drain, add; lab down removes it.")
			if len(plan.Manifests) == 0 { // the user's Services are the user's
				<-ctx.Done()
				return nil
			}
			return serveOrders(ctx, b.Lab, plan.NewController(b.Lab, func(text []byte) error {
				return replaceFile(filepath.Join(b.manifests[0], servicesFile), text)
			}))
		})
	})
}

// replaceFile changes a file at once.
func replaceFile(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	if err := os.WriteFile(next, text, 0o644); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	return nil
}

// holderWithin bounds how long a lab may take to be up.
const holderWithin = time.Minute

// startHolder runs this program again as the one that holds the lab, apart from
// this terminal, and waits until it is up.
func startHolder(ctx context.Context, out, complaints io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("lab up: find this program: %w", err)
	}
	said, err := os.CreateTemp("", "portolan-lab-up-*")
	if err != nil {
		return fmt.Errorf("lab up: %w", err)
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.Command(self, append(os.Args[1:], "--foreground")...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("lab up: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(holderWithin)
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for {
		if _, err := lab.Find(cmd.Process.Pid); err == nil {
			return copyFile(out, said.Name())
		}
		select {
		case <-ended: // it has said why
			if err := copyFile(complaints, said.Name()); err != nil {
				return fmt.Errorf("lab up: the lab ended: %w", err)
			}
			return exitError{code: exitCannotTell}
		case <-ctx.Done():
			return errors.Join(ctx.Err(), cmd.Process.Signal(syscall.SIGTERM))
		case <-deadline:
			return errors.Join(fmt.Errorf("lab up: not up within %v", holderWithin), cmd.Process.Signal(syscall.SIGTERM))
		case <-pause.C:
		}
	}
}

func copyFile(out io.Writer, path string) error {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func newLabDownCommand() *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster of lab up",
		Long: `Ends the process that holds the lab, and with it everything of the lab.

Exit codes: 0 it is gone, 2 none is up.`,
		Example: `  portolan lab down`,
		Args:    takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := lab.Find(pid)
			if err != nil {
				return err
			}
			if err := s.End(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "Removed.")
			return nil
		},
	}
	addLabFlag(cmd.Flags(), &pid)
	return cmd
}
