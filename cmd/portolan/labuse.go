package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan/cmd/portolan/demo"
	"portolan/lab"
	"portolan/service"
	"portolan/source/kube"
	"portolan/source/manifests"
)

func addLabFlag(set *pflag.FlagSet, pid *int) {
	set.IntVar(pid, "lab", 0, "the process that holds the lab, when several are up")
}

func newLabShellCommand() *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "shell HOST [-- COMMAND]",
		Short: "A shell, or a command, in a node, a pod or the client of the lab",
		Long: `Becomes a shell (variable SHELL, else sh) or COMMAND in the network namespace of a
host. Files and processes are those of this machine.

Exit codes: those of the shell or COMMAND; 2 none is up, or nobody is called so.`,
		Example: `  portolan lab shell node1
  portolan lab shell node1 -- nft list table ip portolan`,
		Args: takes(1, anyNumber),
		RunE: func(_ *cobra.Command, args []string) error {
			_, h, err := attach(pid, args[0])
			if err != nil {
				return err
			}
			command := args[1:]
			if len(command) == 0 {
				command = []string{"sh"}
				if shell := os.Getenv("SHELL"); shell != "" {
					command[0] = shell
				}
			}
			path, err := exec.LookPath(command[0])
			if err != nil {
				return fmt.Errorf("lab shell: %w", err)
			}
			return fmt.Errorf("lab shell: run %s: %w", path, h.Become(path, command, append(os.Environ(), "PORTOLAN_LAB_HOST="+args[0])))
		},
	}
	addLabFlag(cmd.Flags(), &pid)
	return cmd
}

func attach(pid int, name string) (lab.State, *lab.Host, error) {
	s, err := lab.Find(pid)
	if err != nil {
		return s, nil, err
	}
	h, err := s.Attach(name)
	return s, h, err
}

func newLabCaptureCommand() *cobra.Command {
	var pid, count int
	cmd := &cobra.Command{
		Use:   "capture [HOST...]",
		Short: "Print the packets that pass the interfaces of hosts of the lab",
		Long: `Prints a line for each packet until Ctrl-C or --count: host, interface, whether it
came in or went out, addresses, and what vxlan carries. Without HOST it listens on
all nodes.

Exit codes: 0 done, 2 none is up.`,
		Example: `  portolan lab capture node1 node2
  portolan lab capture --count 20`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 0 {
				return fmt.Errorf("lab capture: --count %d is less than none", count)
			}
			s, err := lab.Find(pid)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = namesOf(s, lab.ANode)
			}
			return capture(cmd.Context(), cmd.OutOrStdout(), s, args, count)
		},
	}
	addLabFlag(cmd.Flags(), &pid)
	cmd.Flags().IntVar(&count, "count", 0, "end after so many packets; 0 goes on")
	return cmd
}

func namesOf(s lab.State, kind lab.Kind) (names []string) {
	for _, h := range s.Hosts {
		if h.Kind == kind {
			names = append(names, h.Name)
		}
	}
	return names
}

// capture prints packets until it is interrupted, or so many have passed.
func capture(ctx context.Context, out io.Writer, s lab.State, names []string, count int) error {
	heard := make(chan lab.Sighting, 1000)
	for _, name := range names {
		h, err := s.Attach(name)
		if err != nil {
			return err
		}
		defer h.Detach()
		sniffer, err := h.Sniff(func(one lab.Sighting) {
			select {
			case heard <- one:
			default: // who prints is slower than the lab
			}
		})
		if err != nil {
			return err
		}
		defer sniffer.Close()
	}
	for n := 0; count == 0 || n < count; n++ {
		select {
		case <-ctx.Done():
			return nil
		case one := <-heard:
			way := "in"
			if one.Out {
				way = "out"
			}
			fmt.Fprintf(out, "%s  %-8s %-10s %-3s %s\n", one.At.Format("15:04:05.000000"), one.Host, one.Interface, way, one.Packet.Text())
		}
	}
	return nil
}

// target finds what a user calls: ADDRESS:PORT, or a Service of the lab by its
// namespace and name, by its first cluster IP and port.
func target(ctx context.Context, s lab.State, text string) (string, netip.AddrPort, error) {
	if to, err := netip.ParseAddrPort(text); err == nil {
		return "tcp", to, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = "default", text
	}
	snapshot, _ := manifests.New(s.Manifests, kube.NewCluster(kube.Settings{})).Load(ctx)
	var names []string
	for svc := range snapshot.All() {
		if svc.Name == (service.Name{Namespace: namespace, Name: name}) && len(svc.ClusterIPs) > 0 && len(svc.Ports) > 0 {
			port := svc.Ports[0]
			return string(port.Protocol), netip.AddrPortFrom(svc.ClusterIPs[0], port.Port), nil
		}
		names = append(names, svc.Name.String())
	}
	slices.Sort(names)
	return "", netip.AddrPort{}, fmt.Errorf("lab: %q is neither ADDRESS:PORT nor a Service of the lab; there are %s", text, strings.Join(names, ", "))
}

func newLabWalkCommand() *cobra.Command {
	var pid int
	cmd := &cobra.Command{
		Use:   "walk CLIENT SERVICE",
		Short: "Send one packet and print its way, beside what trace says",
		Long: `Has a host (a pod, a node or the client) send one packet to a Service (NAMESPACE/NAME
or ADDRESS:PORT) while all hosts listen, and prints where it came by: interfaces,
addresses before and after, the outer header between nodes, and next to each node
what "portolan trace" says of it.

Exit codes: 0 it was answered, 1 it was not, 2 it could not be sent.`,
		Example: `  portolan lab walk pod-2-2 default/web
  portolan lab walk client 192.0.2.11:30080`,
		Args: takes(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := lab.Find(pid)
			if err != nil {
				return err
			}
			return walk(cmd.Context(), cmd.OutOrStdout(), s, args[0], args[1])
		},
	}
	addLabFlag(cmd.Flags(), &pid)
	return cmd
}

// walk sends one packet and prints its way.
func walk(ctx context.Context, out io.Writer, s lab.State, from, to string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("lab walk: find this program: %w", err)
	}
	w := demo.Walk{Tries: 1, Trace: traceIn(self, s.Manifests)}
	if w.Proto, w.To, err = target(ctx, s, to); err != nil {
		return err
	}
	for _, state := range s.Hosts {
		h, err := s.Attach(state.Name)
		if err != nil {
			return err
		}
		defer h.Detach()
		if state.Kind == lab.ANode {
			w.Nodes = append(w.Nodes, h)
		} else {
			w.Hosts = append(w.Hosts, h)
		}
	}
	if w.From = hostOf(from, w); w.From == nil {
		_, err := s.Attach(from) // says who there is
		return err
	}
	err = w.Show(ctx, out)
	if errors.Is(err, demo.ErrUnexpected) {
		return exitError{code: exitBadNews}
	}
	return err
}

func newLabTrafficCommand() *cobra.Command {
	var pid, rate int
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "traffic CLIENT SERVICE",
		Short: "Call a Service again and again, and print who answers",
		Long: `Has a host call a Service (NAMESPACE/NAME or ADDRESS:PORT) with a new connection
each time, and prints every second who answered how often and what failed.

Exit codes: 0 every call was answered, 1 some were not, 2 none is up.`,
		Example: `  portolan lab traffic client 192.0.2.11:30080 --rate 50 --for 10s`,
		Args:    takes(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rate < 1 || rate > 10_000 {
				return fmt.Errorf("lab traffic: --rate %d is not between 1 and 10000", rate)
			}
			if length < 0 {
				return fmt.Errorf("lab traffic: --for %v is less than nothing", length)
			}
			s, h, err := attach(pid, args[0])
			if err != nil {
				return err
			}
			defer h.Detach()
			proto, to, err := target(cmd.Context(), s, args[1])
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if length > 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, length)
				defer stop()
			}
			return traffic(ctx, cmd.OutOrStdout(), h, lab.Call{Proto: proto, To: to, Timeout: time.Second}, rate)
		},
	}
	addLabFlag(cmd.Flags(), &pid)
	cmd.Flags().IntVar(&rate, "rate", 10, "calls a second")
	cmd.Flags().DurationVar(&length, "for", 0, "how long; 0 until Ctrl-C")
	return cmd
}

// traffic calls at a rate until ctx ends.
func traffic(ctx context.Context, out io.Writer, h *lab.Host, call lab.Call, rate int) error {
	results := make(chan lab.Outcome, rate)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	now, failed, pending := map[string]int{}, 0, 0
	note := func(o lab.Outcome) {
		pending--
		if o.Verdict == lab.Answered {
			now[o.Pod]++
			return
		}
		now[o.String()]++
		failed++
	}
	report := func() {
		var parts []string
		for _, who := range slices.Sorted(maps.Keys(now)) {
			parts = append(parts, fmt.Sprintf("%s %dx", who, now[who]))
		}
		if len(parts) > 0 {
			fmt.Fprintf(out, "%s  %s\n", time.Now().Format(time.TimeOnly), strings.Join(parts, ", "))
		}
		clear(now)
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			pending++
			go func() { results <- h.Try(call) }()
		case o := <-results:
			note(o)
		case <-second.C:
			report()
		}
	}
	for pending > 0 {
		note(<-results)
	}
	report()
	if failed > 0 {
		return exitError{exitBadNews, fmt.Errorf("lab traffic: %d calls were not answered", failed)}
	}
	return nil
}
