package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"portolan/cmd/portolan/demo"
	"portolan/lab"
)

// order is what another process asks of the one that holds a lab.
type order struct {
	Verb, Name string
	Within     time.Duration // of a drain
}

// receipt is its answer.
type receipt struct{ Done, Error string }

const controlSocket = "control"

// serveOrders does what is asked over a socket in the lab's folder, one after the
// other, until ctx ends.
func serveOrders(ctx context.Context, l *lab.Lab, c *demo.Controller) error {
	listener, err := net.Listen("unix", filepath.Join(l.Dir(), controlSocket))
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return nil // closed
		}
		obey(ctx, conn, l, c)
		conn.Close()
	}
}

// obey carries out one order that came over the socket, and answers.
func obey(ctx context.Context, conn net.Conn, l *lab.Lab, c *demo.Controller) {
	var o order
	var r receipt
	if err := json.NewDecoder(bufio.NewReader(conn)).Decode(&o); err != nil {
		return // who asked is gone
	}
	done, err := carryOut(ctx, o, c)
	if err == nil {
		err = l.Publish(nil)
	}
	if r.Done = done; err != nil {
		r.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(r) // it is done whether or not somebody hears
}

// carryOut does what an order says, and says what was done.
func carryOut(ctx context.Context, o order, c *demo.Controller) (string, error) {
	switch o.Verb {
	case "kill":
		return o.Name + " is gone", c.Kill(o.Name)
	case "drain":
		ctx, cancel := context.WithTimeout(ctx, o.Within)
		defer cancel()
		return o.Name + " is drained", c.Drain(ctx, o.Name)
	case "add":
		pod, err := c.Add(o.Name)
		return pod + " answers for default/web", err
	}
	return "", fmt.Errorf("lab: %q is nothing to be done", o.Verb)
}

// newLabChangeCommands are kill, drain and add.
func newLabChangeCommands() []*cobra.Command {
	var out []*cobra.Command
	for _, d := range []struct{ use, short, long, example string }{
		{"kill POD|NODE", "End a pod as a crash does, or cut a node off", "The pod is gone at once, or the node is off the switch; the EndpointSlices follow.", "  portolan lab kill pod-1-1"},
		{"drain POD|NODE", "End a pod, or all pods of a node, as they should end", "The EndpointSlices say that the pods terminate, new connections are refused, open ones may end for --within; then the pods are gone.", "  portolan lab drain node2 --within 5s"},
		{"add NODE", "Add a pod to a node", "The pod becomes an endpoint of the Service default/web.", "  portolan lab add node2"},
	} {
		var pid int
		var within time.Duration
		cmd := &cobra.Command{
			Use: d.use, Short: d.short, Example: d.example, Args: takes(1, 1),
			Long: d.long + ` Works on a lab that
"lab up" keeps up with the Services of the demo, also while "lab traffic" runs.

Exit codes: 0 done, 2 it could not be done.`,
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if within < 0 {
				return fmt.Errorf("lab drain: --within %v is less than nothing", within)
			}
			s, err := lab.Find(pid)
			if err != nil {
				return err
			}
			done, err := ask(s, order{cmd.Name(), args[0], within})
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), done)
			}
			return err
		}
		addLabFlag(cmd.Flags(), &pid)
		if cmd.Name() == "drain" {
			cmd.Flags().DurationVar(&within, "within", 10*time.Second, "how long open connections may go on")
		}
		out = append(out, cmd)
	}
	return out
}

// ask has the process that holds a lab do something.
func ask(s lab.State, o order) (string, error) {
	conn, err := net.Dial("unix", filepath.Join(s.Dir, controlSocket))
	if errors.Is(err, os.ErrNotExist) {
		return "", errors.New("lab: this lab has Services of yours (--manifests): change their EndpointSlices there")
	}
	if err != nil {
		return "", fmt.Errorf("lab: %w", err)
	}
	defer conn.Close()
	var r receipt
	err = json.NewEncoder(conn).Encode(o)
	if err == nil {
		err = json.NewDecoder(conn).Decode(&r)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("lab: %w", err)
	case r.Error != "":
		return "", errors.New(r.Error)
	}
	return r.Done, nil
}
