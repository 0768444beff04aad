// Command bench measures Portolan beside kube-proxy: same machine, same run, a
// real API server, real kernel tables, in network namespaces. Everything that is
// missing is built first; that takes minutes the first time.
//
// Both read the API server; Portolan can also be given the same objects as manifest
// files.
// Every run of a product has a node of its own, and the products take turns.
// Ratios count: absolute times depend on the machine and on what else it does.
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
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"portolan/e2e/controlplane"
)

type options struct {
	sizes     []size
	modes     []mode
	repeats   int
	peer      bool
	portolan  string
	input     input
	plan      runPlan
	modeLimit int // largest size at which iptables-nft of the peer is run
}

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
	sizes := set.String("sizes", "1000", "numbers of Services, with commas between")
	perService := set.Int("endpoints", 10, "endpoints of each plain Service")
	workloads := set.String("workloads", "plain,mix", "plain, mix or both")
	modes := set.String("modes", "nftables,iptables-legacy,iptables-nft", "modes of both products")
	set.IntVar(&o.repeats, "repeats", 3, "runs of each product in each mode")
	set.BoolVar(&o.peer, "peer", true, "run kube-proxy; else recorded figures stand in where there are any")
	set.IntVar(&o.modeLimit, "peer-iptables-nft", 1000, "largest number of Services with which kube-proxy is run on iptables-nft")
	set.StringVar(&o.portolan, "portolan", "", "program to measure; built when empty")
	from := set.String("input", string(apiServer), "where Portolan reads the objects: api or manifests")
	set.IntVar(&o.plan.changes, "changes", 8, "EndpointSlice changes of each sort in a run")
	set.DurationVar(&o.plan.pause, "pause", 1500*time.Millisecond, "pause between spaced changes")
	set.DurationVar(&o.plan.idle, "idle", 10*time.Second, "how long the last run of each product is left alone; 0 for not at all")
	set.IntVar(&o.plan.connects, "connects", 1000, "connections to each target of the connect rows; 0 for none")
	set.DurationVar(&o.plan.storm, "storm", 0, "length of the storm of changes in each run; 0 for none")
	set.DurationVar(&o.plan.deadline, "deadline", 2*time.Minute, "for every single thing that is waited for")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if o.input = input(*from); o.input != manifests && o.input != apiServer {
		return o, fmt.Errorf("bench: no input %q", *from)
	}
	o.modes = list[mode](*modes)
	for _, m := range o.modes {
		if !slices.Contains([]mode{nftables, legacy, iptNFT}, m) {
			return o, fmt.Errorf("bench: no mode %q", m)
		}
	}
	for _, text := range list[string](*sizes) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 20 || n > 60000 {
			return o, fmt.Errorf("bench: size %q is not a number from 20 to 60000", text)
		}
		for _, w := range list[string](*workloads) {
			if w != "plain" && w != "mix" {
				return o, fmt.Errorf("bench: no workload %q", w)
			}
			o.sizes = append(o.sizes, size{n, *perService, w == "mix"})
		}
	}
	return o, nil
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
	fmt.Println(environment(ctx, programs))
	var errs []error
	for _, s := range o.sizes {
		if err := o.measure(ctx, programs, b, s); err != nil {
			errs = append(errs, fmt.Errorf("bench: %v: %w", s, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// measure runs all products on one workload, in turn. A run that fails does not
// keep the others from being measured.
func (o options) measure(ctx context.Context, programs string, b binaries, s size) (err error) {
	progress("%v", s)
	w, err := newWorld(ctx, programs, o.input, workload(s.services, s.endpoints, s.mix), 2*len(o.modes)*o.repeats)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	all := results{}
	for i := range o.repeats {
		plan := o.plan
		if i < o.repeats-1 {
			plan.idle = 0
		}
		for _, p := range o.products(s) {
			began := time.Now()
			got, failed := w.run(ctx, b, p, plan)
			all.add(p, got)
			err = errors.Join(err, failed)
			progress("%v, run %d of %d: %.0f s, error %v", p, i+1, o.repeats, time.Since(began).Seconds(), failed)
			if ctx.Err() != nil {
				return err
			}
		}
	}
	printTable(os.Stdout, s, o.modes, all)
	return err
}

// products are those that run, in the order in which they take turns.
func (o options) products(s size) (out []product) {
	for _, m := range o.modes {
		if o.peer && (m != iptNFT || s.services <= o.modeLimit) {
			out = append(out, product{true, m})
		}
		out = append(out, product{false, m})
	}
	return out
}

// environment says what the figures were measured with.
func environment(ctx context.Context, programs string) string {
	var kernel unix.Utsname
	_ = unix.Uname(&kernel) // cannot fail
	first := func(name string, args ...string) string {
		out, err := exec.CommandContext(ctx, name, args...).Output()
		if err != nil {
			return name + ": " + err.Error()
		}
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return line
	}
	return fmt.Sprintf("%d cores, kernel %s, %s; kube-proxy %s, API server %s, %s; %s; %s",
		runtime.NumCPU(), unix.ByteSliceToString(kernel.Release[:]), runtime.Version(),
		first(filepath.Join(programs, "kube-proxy"), "--version"), first(filepath.Join(programs, "kube-apiserver"), "--version"),
		first(filepath.Join(programs, "etcd"), "--version"), first("nft", "--version"), first("iptables", "--version"))
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
