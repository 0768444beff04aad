package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portolan/cmd/portolan/demo"
	"portolan/lab"
	"portolan/source/kube"
	"portolan/source/manifests"
)

// labReadyWithin bounds how long the agents of a lab may take to set up their nodes.
const labReadyWithin = 30 * time.Second

// labFlags say what a lab is like.
type labFlags struct {
	nodes, podsPerNode int
	podnet, proxyMode  string
	manifests          []string
}

func newLabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "A whole little cluster in network namespaces on this machine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Help(), exitError{code: exitCannotTell})
		},
	}
	cmd.AddCommand(newLabRunCommand(), newLabUpCommand(), newLabDownCommand(), newLabShellCommand(), newLabCaptureCommand(), newLabTrafficCommand(), newLabWalkCommand())
	cmd.AddCommand(newLabChangeCommands()...)
	return cmd
}

func newLabRunCommand() *cobra.Command {
	f := labFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] [-- COMMAND]",
		Short: "Build a cluster, show that its Services answer, run a command, remove everything",
		Long: `Builds nodes, pods and an outside client as network namespaces, runs "portolan
podnet" and "portolan proxy" in every node, calls Services and prints who answered
and which source address the pod saw. Then it runs COMMAND, if there is one, and removes
everything, also after Ctrl-C.

With --manifests the Services are those of the files: endpoints in the networks
10.244.N.0/24 and fd00:244:N::/64 become pods of node number N.

COMMAND finds in PORTOLAN_LAB a list NAME=FILE of the hosts; with
"nsenter --net=FILE PROGRAM" it runs programs in them.

Exit codes: 0 every call ended as it should (or that of COMMAND), 1 some did not
or something was left behind; with --manifests no verdict is expected of the
calls, so that only COMMAND decides; 2 the lab could not be built or was interrupted.`,
		Example: `  portolan lab run
  portolan lab run --nodes 3 --pods-per-node 1 --podnet host-gw
  portolan lab run --manifests examples/nodeport
  portolan lab run -- sh -c 'echo $PORTOLAN_LAB'`,
		RunE: func(cmd *cobra.Command, command []string) error {
			if before := cmd.ArgsLenAtDash(); len(command) > 0 && before != 0 {
				return fmt.Errorf("lab run: %q is not a flag; a command comes after --", command[0])
			}
			code, again, err := lab.EnterUserNamespace()
			if err != nil || again {
				return exitAs(code, err)
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), command)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *labFlags) add(set *pflag.FlagSet) {
	set.IntVar(&f.nodes, "nodes", 2, "number of nodes")
	set.IntVar(&f.podsPerNode, "pods-per-node", 2, "number of pods on each node")
	set.StringVar(&f.podnet, "podnet", "vxlan", "how packets get to pods of other nodes: vxlan or host-gw")
	set.StringVar(&f.proxyMode, "proxy-mode", "", "mode of the proxies; empty lets them choose")
	set.StringArrayVar(&f.manifests, "manifests", nil, "file or folder with Services and EndpointSlices to show instead; repeatable")
}

// exitAs ends with a code that is not an error of ours to explain.
func exitAs(code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return exitError{code: code}
}

// run builds a lab, shows it, removes it, and looks that nothing of it is left.
func (f labFlags) run(ctx context.Context, out io.Writer, command []string) error {
	return f.withPlan(ctx, func(plan demo.Plan, network labNetwork) error {
		before, err := lab.Stock()
		if err != nil {
			return err
		}
		result := f.inside(ctx, out, plan, network, func(b builtLab) error { return b.show(ctx, out, command) })
		left, err := lab.LeftAfter(before, 5*time.Second)
		switch {
		case err != nil:
			return errors.Join(result, err)
		case len(left) > 0:
			return errors.Join(result, exitError{exitBadNews, fmt.Errorf("lab: left behind: %s", strings.Join(left, ", "))})
		}
		fmt.Fprintln(out, "Removed; nothing is left behind: no namespace, interface, process or file.")
		if ctx.Err() != nil {
			return exitError{exitCannotTell, errors.New("lab: interrupted")}
		}
		if errors.Is(result, demo.ErrUnexpected) {
			return exitError{exitBadNews, result}
		}
		return result
	})
}

// withPlan works out what to build.
func (f labFlags) withPlan(ctx context.Context, do func(demo.Plan, labNetwork) error) error {
	if !slices.Contains([]string{"", "iptables", "nftables", "ipvs"}, f.proxyMode) {
		return fmt.Errorf("lab: --proxy-mode %q is none of iptables, nftables and ipvs", f.proxyMode)
	}
	network, err := newLabNetwork(f.podnet)
	if err != nil {
		return err
	}
	plan, err := f.plan(ctx)
	if err != nil {
		return err
	}
	plan.Topology.PodNetwork, plan.Topology.PodMTU = true, network.podMTU()
	return do(plan, network)
}

// plan is the demo, or a cluster for the Services in the user's files.
func (f labFlags) plan(ctx context.Context) (demo.Plan, error) {
	if len(f.manifests) == 0 {
		return demo.Default(f.nodes, f.podsPerNode)
	}
	source := manifests.New(f.manifests, kube.NewCluster(kube.Settings{}))
	snapshot, problems := source.Load(ctx)
	var bad []error
	for _, p := range problems {
		if !p.Warning {
			bad = append(bad, p)
		}
	}
	if len(bad) > 0 {
		return demo.Plan{}, errors.Join(bad...)
	}
	services := slices.Collect(snapshot.All())
	if len(services) == 0 {
		return demo.Plan{}, fmt.Errorf("lab: no Service in %s", strings.Join(f.manifests, ", "))
	}
	return demo.ForServices(services, f.nodes)
}

// builtLab is a lab in which the agents have done their work.
type builtLab struct {
	*lab.Lab
	plan      demo.Plan
	manifests []string // where its Services are
	program   string   // the path of this one, which the agents run
}

// inside builds the lab with its agents, has use do what it is for, and removes it.
func (f labFlags) inside(ctx context.Context, out io.Writer, plan demo.Plan, network labNetwork, use func(builtLab) error) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("lab: find this program: %w", err)
	}
	began := time.Now()
	l, err := lab.New(plan.Topology)
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintf(out, "A cluster in network namespaces, built in %.1f s:\n", time.Since(began).Seconds())
	plan.Network(out)
	ready, cancel := context.WithTimeout(ctx, labReadyWithin)
	defer cancel()
	began = time.Now()
	if err := network.start(ready, l, self, plan.Topology.Nodes); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%s, within %.1f s.\n", network.describe(), time.Since(began).Seconds())
	began = time.Now()
	manifests, err := f.writeManifests(l, plan)
	if err != nil {
		return err
	}
	if err := f.startProxies(ready, l, self, manifests); err != nil {
		return err
	}
	fmt.Fprintf(out, "portolan proxy has programmed every node within %.1f s.\n", time.Since(began).Seconds())
	return errors.Join(use(builtLab{l, plan, manifests, self}), l.Close())
}

// show makes the calls of the plan, walks a packet and runs the user's command.
func (b builtLab) show(ctx context.Context, out io.Writer, command []string) error {
	fmt.Fprintln(out)
	result := b.plan.Show(ctx, b.Lab, out)
	fmt.Fprintln(out)
	if w, ok := b.walk(); ok && ctx.Err() == nil {
		err := w.Show(ctx, out)
		if !errors.Is(err, demo.ErrUnexpected) { // the table has said so
			result = errors.Join(result, err)
		}
		fmt.Fprintln(out)
	}
	if ctx.Err() == nil && len(command) > 0 {
		result = errors.Join(result, runCommand(ctx, b.Lab, command))
	}
	return result
}

// servicesFile is where a lab keeps its own Services, in its folder of manifests.
const servicesFile = "services.yaml"

// writeManifests returns where the Services are: in the user's files, or in those
// that it writes.
func (f labFlags) writeManifests(l *lab.Lab, plan demo.Plan) ([]string, error) {
	if len(plan.Manifests) == 0 {
		return f.manifests, nil
	}
	dir := filepath.Join(l.Dir(), "manifests")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lab: folder for manifests: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, servicesFile), plan.Manifests, 0o644); err != nil {
		return nil, fmt.Errorf("lab: write manifests: %w", err)
	}
	return []string{dir}, nil
}

// startProxies runs this program as the proxy of every node, and waits until all
// have programmed theirs.
func (f labFlags) startProxies(ctx context.Context, l *lab.Lab, self string, manifests []string) error {
	args := []string{"proxy"}
	for _, path := range manifests {
		args = append(args, "--manifests", path)
	}
	var cidrs []string
	for _, p := range lab.PodNetworks {
		cidrs = append(cidrs, p.String())
	}
	args = append(args, "--cluster-cidr", strings.Join(cidrs, ","))
	if f.proxyMode != "" {
		args = append(args, "--proxy-mode", f.proxyMode)
	}
	return onEveryNode(l, func(n *lab.Node) error {
		args := append(slices.Clone(args), "--hostname-override", n.Name)
		for _, a := range n.Addrs {
			args = append(args, "--node-ip", a.String())
		}
		return startAgent(ctx, n, self, args, "http://127.0.0.1:10256/healthz")
	})
}

// onEveryNode does something on all nodes at once.
func onEveryNode(l *lab.Lab, do func(*lab.Node) error) error {
	errs := make([]error, len(l.Nodes()))
	var doing sync.WaitGroup
	for i, n := range l.Nodes() {
		doing.Go(func() { errs[i] = do(n) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// startAgent starts a program that runs until the lab closes, and waits until it
// says at a URL that it is ready.
func startAgent(ctx context.Context, n *lab.Node, self string, args []string, ready string) error {
	cmd := n.Command(context.WithoutCancel(ctx), lab.HostVariant, self, args...)
	said := &lastWords{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := n.AwaitOK(ctx, ready, cmd.Done()); err != nil {
		return fmt.Errorf("%w\nportolan %s of %s said last:\n%s", err, args[0], n.Name, said)
	}
	return nil
}

// lastWords keeps the end of what a program writes, for when it fails.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	w.text = w.text[max(0, len(w.text)-4096):]
	return len(p), nil
}

func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(bytes.TrimSpace(w.text))
}

// runCommand runs the user's command beside the lab, on our terminal.
func runCommand(ctx context.Context, l *lab.Lab, command []string) error {
	var hosts []string
	paths := l.Paths()
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		hosts = append(hosts, name+"="+paths[name])
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "PORTOLAN_LAB="+strings.Join(hosts, " "))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // for the kernel the parent of a child is a thread
	defer runtime.UnlockOSThread()
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitError{code: exit.ExitCode()}
	}
	if err != nil {
		return fmt.Errorf("lab: run %s: %w", command[0], err)
	}
	return nil
}
