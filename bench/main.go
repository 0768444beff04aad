package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"portolan/bench/figures"
	"portolan/e2e/controlplane"
)

type options struct {
	workloads []figures.Workload
	modes     []figures.Mode
	repeats   int
	peer      string // see peers
	portolan  string
	out       string // file of lines; empty for none
	plan      runPlan
}

// stormRate is what the rows of the storm are about.
const stormRate = 100

// peers are the values of -peer.
var peers = []string{"all", "limited", "none"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	o := options{}
	workloads := set.String("workloads", "1000x10,1000mix", "Services x endpoints of each, or Services with endpoints and sorts mixed")
	modes := set.String("modes", "nftables,iptables-legacy,iptables-nft", "modes of Portolan, each beside kube-proxy's that is like it; all for all")
	set.IntVar(&o.repeats, "repeats", 3, "runs of each product in each mode")
	set.StringVar(&o.peer, "peer", "limited", "when kube-proxy is run: all, limited (where its first sync takes less than a minute) or none")
	set.StringVar(&o.portolan, "portolan", "", "program to measure; built when empty")
	set.StringVar(&o.out, "o", "", "file that each run is added to as a line of JSON")
	set.IntVar(&o.plan.changes, "changes", 8, "EndpointSlice changes of each sort in a run")
	set.DurationVar(&o.plan.pause, "pause", 1500*time.Millisecond, "pause between spaced changes")
	set.DurationVar(&o.plan.busy, "busy", 8*time.Second, "how long changes are measured beside 20 others a second; 0 for not at all")
	set.DurationVar(&o.plan.idle, "idle", 10*time.Second, "how long a run is left alone; 0 for not at all")
	set.IntVar(&o.plan.connects, "connects", 5000, "connections to each target of the connect rows; 0 for none")
	set.BoolVar(&o.plan.emptied, "emptied", true, "start where everything was deleted, at the end of a run")
	set.DurationVar(&o.plan.storm, "storm", 0, "length of a storm of changes; 0 for none")
	set.IntVar(&o.plan.stormRate, "rate", stormRate, "changes a second of the storm; its rows are kept only with the usual rate")
	set.DurationVar(&o.plan.deadline, "deadline", 2*time.Minute, "for every single thing that is waited for")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if !slices.Contains(peers, o.peer) {
		return o, fmt.Errorf("bench: -peer %q is none of %v", o.peer, peers)
	}
	if o.modes = list[figures.Mode](*modes); *modes == "all" {
		o.modes = figures.Modes
	}
	for _, m := range o.modes {
		if !slices.Contains(figures.Modes, m) {
			return o, fmt.Errorf("bench: mode %q is none of %v", m, figures.Modes)
		}
	}
	for _, text := range list[string](*workloads) {
		w, err := figures.ParseWorkload(text)
		if err != nil {
			return o, err
		}
		o.workloads = append(o.workloads, w)
	}
	return o, nil
}

// list splits a flag at its commas.
func list[T ~string](text string) []T {
	var out []T
	for _, t := range strings.Split(text, ",") {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, T(t))
		}
	}
	return out
}

// run measures every workload and prints its table when it is done.
func run(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("bench: network namespaces and their rules need root")
	}
	programs, err := controlplane.Build(ctx, os.Stderr, "etcd", "kube-apiserver", "kube-proxy")
	if err != nil {
		return err
	}
	b := binaries{kubeProxy: filepath.Join(programs, "kube-proxy"), portolan: o.portolan}
	if b.portolan == "" {
		dir, err := os.MkdirTemp("", "portolan-bench-")
		if err != nil {
			return fmt.Errorf("bench: working folder: %w", err)
		}
		defer os.RemoveAll(dir)
		b.portolan = filepath.Join(dir, "portolan")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", b.portolan, "portolan/cmd/portolan")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("bench: build portolan: %w\n%s", err, out)
		}
	}
	about := figures.Run{Commit: firstLine(ctx, "git", "describe", "--always", "--dirty"), Machine: machine(ctx, programs)}
	fmt.Println(about.Machine)
	var errs []error
	for _, w := range o.workloads {
		about.Workload = w
		if err := o.measure(ctx, programs, b, about); err != nil {
			errs = append(errs, fmt.Errorf("bench: %s: %w", w.Title(), err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// measure runs all products on one workload, in turn. A run that fails does not
// keep the others from being measured.
func (o options) measure(ctx context.Context, programs string, b binaries, about figures.Run) (err error) {
	progress("%s", about.Workload.Title())
	w, err := newWorld(ctx, programs, about.Workload, 2*len(o.modes)*o.repeats)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var runs []figures.Run
	for i := range o.repeats {
		for _, p := range o.products(about.Workload) {
			got := about
			got.Product, got.Mode, got.Taken, got.Load = p.name, p.mode, time.Now().UTC().Truncate(time.Second), load()
			failed := w.run(ctx, b, p, o.plan, &got)
			progress("%v, run %d of %d: %.0f s, error %v", p, i+1, o.repeats, time.Since(got.Taken).Seconds(), failed)
			if ctx.Err() != nil {
				return ctx.Err() // the run is not a whole one
			}
			if failed != nil {
				got.Failed, _, _ = strings.Cut(failed.Error(), "\n")
			}
			runs = append(runs, got)
			if o.out != "" {
				failed = errors.Join(failed, figures.Append(o.out, got))
			}
			err = errors.Join(err, failed)
		}
	}
	fmt.Printf("\n### %s\n\n", about.Workload.Title())
	return errors.Join(err, figures.Table(os.Stdout, runs, about.Workload))
}

// limits are the most Services with which kube-proxy's first sync takes less than
// a minute or so on two cores.
var limits = map[figures.Mode]int{figures.Nftables: 10000, figures.Legacy: 10000, figures.NFT: 1000}

// products are those that run, in the order in which they take turns. kube-proxy
// runs once in each of its modes.
func (o options) products(w figures.Workload) (out []product) {
	for _, m := range o.modes {
		peer := product{figures.KubeProxy, m.Peer()}
		if !slices.Contains(out, peer) && (o.peer == "all" || o.peer == "limited" && w.Services <= limits[m.Peer()] && w.Endpoints <= 10) {
			out = append(out, peer)
		}
		out = append(out, product{figures.Portolan, m})
	}
	return out
}

// machine says what the figures were measured with.
func machine(ctx context.Context, programs string) string {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // cannot fail
	release, _, _ := strings.Cut(unix.ByteSliceToString(kernel.Release[:]), "-")
	version := func(program, flag string) string {
		words := strings.Fields(firstLine(ctx, program, flag))
		return filepath.Base(program) + " " + words[len(words)-1]
	}
	nft, _, _ := strings.Cut(firstLine(ctx, "nft", "--version"), " (")
	iptables, _, _ := strings.Cut(firstLine(ctx, "iptables", "--version"), " (")
	return fmt.Sprintf("%d cores, kernel %s, %s; %s, %s, %s; %s, %s", runtime.NumCPU(), release, runtime.Version(),
		version(filepath.Join(programs, "kube-proxy"), "--version"), version(filepath.Join(programs, "kube-apiserver"), "--version"),
		version(filepath.Join(programs, "etcd"), "--version"), nft, iptables)
}

// firstLine is the first line that a program prints, or why there is none.
func firstLine(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return name + ": " + err.Error()
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
